"""Scores, whose pieces come as a stream and are one value."""

from __future__ import annotations

import grpc
import pytest
from tests.client.conftest import FakeOrchestrator

from specmesh.client import AsyncClient, Client, SpecmeshError, TextScore
from specmesh.client.testing import FakeMesh
from specmesh.v1 import scoring_pb2


def piece(*token_ids: int) -> scoring_pb2.ScoreResponse:
    likely = [{"chosen": {"token_id": each, "logprob": -0.5}} for each in token_ids]
    return scoring_pb2.ScoreResponse(
        token_ids=token_ids, logprobs=likely[token_ids[0] == 0 :], model_fingerprint="m"
    )


class Scorer(FakeOrchestrator):
    """Sends pieces, of which the first calls get only as many as ``breaks`` says."""

    def __init__(self, *breaks: int) -> None:
        super().__init__()
        self.breaks = list(breaks)

    async def Score(self, request, context):  # noqa: N802
        self.requests.append(request)
        pieces = [piece(0), piece(1, 2), piece(3)]
        if not self.breaks:
            for each in pieces:
                yield each
            return
        for each in pieces[: self.breaks.pop(0)]:
            yield each
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")


def check(score: TextScore) -> None:
    assert score.token_ids == (0, 1, 2, 3)
    assert [each.chosen.token_id for each in score.logprobs] == [1, 2, 3]
    assert (score.logprob, score.model_fingerprint) == (-1.5, "m")


async def test_pieces_are_joined(serve):
    scorer = await serve(Scorer())
    async with AsyncClient(scorer.address) as client:
        check(await client.score("text"))


async def test_a_stream_that_breaks_begins_anew(serve):
    scorer = await serve(Scorer(2, 1))
    async with AsyncClient(scorer.address) as client:
        check(await client.score("text"))
    assert len(scorer.requests) == 3


async def test_no_part_of_a_score_is_a_score(serve):
    scorer = await serve(Scorer(2))
    async with AsyncClient(scorer.address, max_retries=0) as client:
        with pytest.raises(SpecmeshError, match="gone"):
            await client.score("text")


def test_a_fake_mesh_scores_texts():
    with FakeMesh() as mesh, Client(mesh.address) as client:
        for text in ("x", "two"):
            score = client.score(text)
            assert score.token_ids == tuple(text.encode())
            assert score.logprob == 1 - len(text)
