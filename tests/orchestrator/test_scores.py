"""Scores: what an orchestrator asks for, refuses, and counts."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
from tests.orchestrator.answers import PROMPT, PROMPT_IDS
from tests.orchestrator.model import features_but, target_logits
from tests.orchestrator.peers import Verifier, raising

from specmesh.orchestrator.answers import scores
from specmesh.serving.errors import UnavailableStatus, error_info
from specmesh.v1 import model_pb2, scoring_pb2


def expected(tokens: list[int]) -> list[float]:
    """The log-probability of each token but the first."""
    found = []
    for at in range(1, len(tokens)):
        logits = target_logits(tokens[:at])
        found.append(logits[tokens[at]] - np.logaddexp.reduce(logits))
    return found


async def test_every_token_but_the_first_is_scored_a_piece_at_a_time(connect, serve, monkeypatch):
    monkeypatch.setattr(scores, "MAX_PIECE", 4)
    verifier = Verifier()
    stub = await serve(await connect([verifier]))
    response = await stub.Score(scoring_pb2.ScoreRequest(text=PROMPT, num_top_logprobs=2))
    assert list(response.token_ids) == PROMPT_IDS
    told = [each.chosen.logprob for each in response.logprobs]
    assert told == pytest.approx(expected(PROMPT_IDS), abs=1e-4)
    assert all(len(each.top) == 2 for each in response.logprobs)
    sizes = [len(call.tree.token_ids) for call in verifier.requests]
    assert sizes == [4] * (len(PROMPT_IDS[1:]) // 4) + [len(PROMPT_IDS[1:]) % 4]


async def test_a_replica_that_fails_is_replaced(connect, serve):
    first, second = Verifier(), Verifier()
    first.faults += raising(*[UnavailableStatus("GONE", "gone")] * 3)
    second.faults += raising(*[UnavailableStatus("GONE", "gone")] * 1)
    stub = await serve(await connect([first, second]))
    response = await stub.Score(scoring_pb2.ScoreRequest(tokens={"token_ids": [5, 6, 7]}))
    told = [each.chosen.logprob for each in response.logprobs]
    assert told == pytest.approx(expected([5, 6, 7]), abs=1e-4)


async def test_a_mesh_with_a_replica_that_cannot_score_refuses(connect, serve):
    lacking = features_but(model_pb2.MODEL_FEATURE_NODE_LOGPROBS)
    stub = await serve(await connect([Verifier(), Verifier(features=lacking)]))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Score(scoring_pb2.ScoreRequest(text="hello"))
    info = error_info(raised.value)
    assert (info.reason, info.metadata["feature"]) == ("UNSUPPORTED_FEATURE", "NODE_LOGPROBS")


async def test_another_model_is_not_found(connect, serve):
    stub = await serve(await connect([Verifier()]))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Score(scoring_pb2.ScoreRequest(text="hello", model="other"))
    assert error_info(raised.value).reason == "MODEL_NOT_FOUND"
