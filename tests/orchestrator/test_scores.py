"""Scores: what an orchestrator asks for, refuses, and counts."""

from __future__ import annotations

import asyncio

import grpc
import numpy as np
import pytest
from tests.orchestrator.answers import PROMPT, PROMPT_IDS
from tests.orchestrator.model import (
    CONTEXT_TOKENS,
    END_OF_TEXT,
    VOCAB_SIZE,
    features_but,
    target_logits,
)
from tests.orchestrator.peers import Hold, Verifier, passing, raising
from tokenizers import Tokenizer
from tokenizers.normalizers import Replace
from tokenizers.processors import TemplateProcessing

from specmesh.client.answers.scores import score_from
from specmesh.orchestrator.admission.controller import Admission
from specmesh.orchestrator.admission.entrance import Entrance
from specmesh.orchestrator.answers import scores
from specmesh.serving.errors import UnavailableStatus, error_info
from specmesh.serving.templates.tokenizers import fingerprint
from specmesh.v1 import model_pb2, scoring_pb2


def expected(tokens: list[int]) -> list[float]:
    """The log-probability of each token but the first."""
    found = []
    for at in range(1, len(tokens)):
        logits = target_logits(tokens[:at])
        found.append(logits[tokens[at]] - np.logaddexp.reduce(logits))
    return found


async def test_every_token_but_the_first_is_scored(connect, serve):
    stub = await serve(await connect([Verifier()]))
    asked = scoring_pb2.ScoreRequest(text=PROMPT, num_top_logprobs=2)
    score = await score_from(stub.Score(asked))
    assert list(score.token_ids) == PROMPT_IDS
    told = [each.chosen.logprob for each in score.logprobs]
    assert told == pytest.approx(expected(PROMPT_IDS), abs=1e-4)
    assert all(len(each.top) == 2 for each in score.logprobs)


@pytest.mark.parametrize(
    ("limit", "most"),
    [("MAX_PIECE", 4), ("MAX_PIECE_LOGITS", 4 * VOCAB_SIZE), ("MAX_PIECE_LOGPROBS", 12)],
)
async def test_a_piece_is_told_before_the_next_is_scored(connect, serve, monkeypatch, limit, most):
    monkeypatch.setattr(scores, limit, most)
    verifier, hold = Verifier(), Hold()
    verifier.faults += [passing, hold]
    stub = await serve(await connect([verifier]))
    pieces = aiter(stub.Score(scoring_pb2.ScoreRequest(text=PROMPT, num_top_logprobs=2)))
    first = await anext(pieces)
    assert (list(first.token_ids), len(first.logprobs)) == (PROMPT_IDS[:1], 0)
    second = await anext(pieces)
    assert list(second.token_ids) == PROMPT_IDS[1:5]
    hold.released.set()
    sizes = [len(piece.logprobs) async for piece in pieces]
    rest = len(PROMPT_IDS[5:])
    assert sizes == [4] * (rest // 4) + [rest % 4] * (rest % 4 > 0)
    assert [len(call.tree.token_ids) for call in verifier.requests] == [4, *sizes]


async def test_who_does_not_read_loses_the_slot_to_others_until_he_does(monkeypatch):
    monkeypatch.setattr(scores, "READER_SECONDS", 0.0)
    admission, running = Admission(), []

    async def made():
        for number in (0, 2, 2):
            running.append(admission.num_running)
            yield scoring_pb2.ScoreResponse(logprobs=[{}] * number)

    deadline = asyncio.get_running_loop().time() + 60
    pieces = scores.admitted(made(), 5, Entrance(admission, lambda: 1, lambda: 0.5), deadline)
    for _ in range(3):
        await anext(pieces)
        assert admission.num_running == 1
        for _ in range(5):  # the timer goes off
            await asyncio.sleep(0)
        assert admission.num_running == 0
    assert [piece async for piece in pieces] == []
    assert running == [1, 1, 1]


async def test_a_replica_that_fails_is_replaced(connect, serve):
    first, second = Verifier(), Verifier()
    first.faults += raising(*[UnavailableStatus("GONE", "gone")] * 3)
    second.faults += raising(*[UnavailableStatus("GONE", "gone")] * 1)
    stub = await serve(await connect([first, second]))
    score = await score_from(stub.Score(scoring_pb2.ScoreRequest(tokens={"token_ids": [5, 6, 7]})))
    told = [each.chosen.logprob for each in score.logprobs]
    assert told == pytest.approx(expected([5, 6, 7]), abs=1e-4)


async def test_a_mesh_with_a_replica_that_cannot_score_refuses(connect, serve):
    lacking = features_but(model_pb2.MODEL_FEATURE_NODE_LOGPROBS)
    stub = await serve(await connect([Verifier(), Verifier(features=lacking)]))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await score_from(stub.Score(scoring_pb2.ScoreRequest(text="hello")))
    info = error_info(raised.value)
    assert (info.reason, info.metadata["feature"]) == ("UNSUPPORTED_FEATURE", "NODE_LOGPROBS")


async def test_another_model_is_not_found(connect, serve):
    stub = await serve(await connect([Verifier()]))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await score_from(stub.Score(scoring_pb2.ScoreRequest(text="hello", model="other")))
    assert error_info(raised.value).reason == "MODEL_NOT_FOUND"


async def test_a_text_may_fill_the_context(connect, serve):
    stub = await serve(await connect([Verifier()]))
    whole = scoring_pb2.ScoreRequest(tokens={"token_ids": [70] * CONTEXT_TOKENS})
    assert len((await score_from(stub.Score(whole))).logprobs) == CONTEXT_TOKENS - 1


def served_with(verifier: Verifier, **parts: object) -> Verifier:
    """``verifier`` with ``parts`` of the tokenizer changed."""
    ours = Tokenizer.from_str(verifier.tokenizer_json)
    for name, part in parts.items():
        setattr(ours, name, part)
    verifier.tokenizer_json = ours.to_str()
    verifier.info.tokenizer_fingerprint = fingerprint(verifier.tokenizer_json)
    return verifier


async def test_offsets_are_those_in_the_text_that_the_tokenizer_changes(connect, serve):
    verifier = served_with(Verifier(), normalizer=Replace("  ", ""))
    stub = await serve(await connect([verifier]))
    score = await score_from(stub.Score(scoring_pb2.ScoreRequest(text="\x01  \x02\x03  \x04")))
    assert [each.text_offset for each in score.logprobs] == [1, 4, 5]


@pytest.mark.parametrize("written", ["<end>hello <end>", "<end><end>hello"])
@pytest.mark.parametrize("special", [None, True, False])
async def test_special_tokens_are_spelled_unless_the_tokenizer_has_added_them(
    connect, serve, written, special
):
    around = TemplateProcessing(single="<end> $A <end>", special_tokens=[("<end>", END_OF_TEXT)])
    verifier = served_with(Verifier(), post_processor=around)
    stub = await serve(await connect([verifier]))
    asked = scoring_pb2.ScoreRequest(text=written, add_special_tokens=special)
    score = await score_from(stub.Score(asked))
    begun = written[: score.logprobs[0].text_offset]
    assert begun == ("" if special else "<end>")
    assert begun + b"".join(each.chosen.bytes for each in score.logprobs).decode() == written
    for each in score.logprobs:
        assert written[each.text_offset :].startswith(each.chosen.bytes.decode())
