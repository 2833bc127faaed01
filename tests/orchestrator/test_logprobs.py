"""Log-probabilities on request: the target's own, whichever strategy brings the tokens."""

from __future__ import annotations

import math

import grpc
import numpy as np
import pytest
from tests.orchestrator.answers import (
    NUM_TOKENS,
    PROMPT_IDS,
    Answer,
    collect,
    request,
    resuming,
)
from tests.orchestrator.conftest import Connect, Serve, StoreOn
from tests.orchestrator.model import VOCAB_SIZE, target_logits
from tests.orchestrator.peers import Drafter, Filter, Hold, Verifier, passing
from tests.serving.conftest import RedisServer

from specmesh.decoding.logprobs import MAX_TOP_LOGPROBS
from specmesh.mesh.v1alpha1 import verifier_pb2
from specmesh.orchestrator.strategies import LOSSLESS
from specmesh.serving.errors import invalid_field
from specmesh.v1 import events_pb2

NUM_TOP = 3
GREEDY = {"temperature": 0}
COUPLED = {"temperature": 0.8, "seed": 11, "top_k": 20, "top_p": 0.9}
REJECTION = {**COUPLED, "acceptance_mode": "ACCEPTANCE_MODE_REJECTION"}
SAMPLINGS = pytest.mark.parametrize(
    "sampling", [GREEDY, COUPLED, REJECTION], ids=["greedy", "coupled", "rejection"]
)


def logprobs(answer: Answer) -> list[events_pb2.TokenLogprobs]:
    return [each for chunk in answer.chunks for each in chunk.logprobs]


def expected(tokens: list[int]) -> list[np.ndarray]:
    """The log-softmax of the target's logits before each token: ``[VOCAB_SIZE]``."""
    rows = [target_logits([*PROMPT_IDS, *tokens[:at]]) for at in range(len(tokens))]
    return [row - np.logaddexp.reduce(row) for row in rows]


def check(answer: Answer, num_top: int = NUM_TOP) -> None:
    """All tokens of ``answer``, an answer from its first token on, have the right ones."""
    given = logprobs(answer)
    assert len(given) == len(answer.tokens)
    for token, told, row in zip(answer.tokens, given, expected(answer.tokens), strict=True):
        assert told.chosen.token_id == token
        assert told.chosen.logprob == pytest.approx(row[token], abs=1e-5)
        best = np.argsort(-row, kind="stable")[:num_top]
        assert [each.token_id for each in told.top] == best.tolist()
        assert [each.logprob for each in told.top] == pytest.approx(row[best], abs=1e-5)
        assert sum(math.exp(each.logprob) for each in told.top) <= 1 + 1e-6


@SAMPLINGS
@pytest.mark.parametrize("strategy", LOSSLESS)
async def test_every_token_has_the_targets_own(
    connect: Connect, serve: Serve, strategy: str, sampling: dict[str, object]
):
    verifiers, drafters = [Verifier(), Verifier()], [Drafter(), Drafter("other", 0.5)]
    stub = await serve(await connect(verifiers, drafters))
    asked = request(sampling=sampling, speculation={"strategy": strategy}, num_top_logprobs=NUM_TOP)
    answer = await collect(stub.Generate(asked))
    assert len(answer.tokens) == NUM_TOKENS
    check(answer)
    calls = [call for verifier in verifiers for call in verifier.requests]
    assert all(call.num_top_logprobs == NUM_TOP for call in calls)
    assert not any(call.num_bonus_candidates for call in calls)


async def test_the_bytes_of_the_tokens_are_those_of_the_text(connect: Connect, serve: Serve):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    answer = await collect(stub.Generate(request(num_top_logprobs=0)))
    check(answer, num_top=0)
    written = b""
    for told in logprobs(answer):
        begun = written + told.chosen.text_bytes[:1]
        assert told.text_offset == len(begun.decode(errors="replace")) - 1
        written += told.chosen.text_bytes
    assert written.decode(errors="replace") == answer.text


async def test_without_a_request_there_are_none(connect: Connect, serve: Serve):
    verifier = Verifier()
    stub = await serve(await connect([verifier], [Drafter()]))
    answer = await collect(stub.Generate(request()))
    assert logprobs(answer) == []
    assert not any(call.HasField("num_top_logprobs") for call in verifier.requests)


@pytest.mark.parametrize(
    "fields",
    [{"num_top_logprobs": MAX_TOP_LOGPROBS + 1}, {"speculation": {"strategy": "filter"}}],
    ids=["too many", "filter"],
)
async def test_what_cannot_be_told_is_refused(
    connect: Connect, serve: Serve, fields: dict[str, object]
):
    verifier = Verifier()
    stub = await serve(await connect([verifier], [Drafter()], [Filter()]))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(stub.Generate(request(**{"num_top_logprobs": 1} | fields)))
    found = invalid_field(raised.value)
    assert found is not None
    assert found.field == "num_top_logprobs"
    assert verifier.requests == []


def none_at_all(message: verifier_pb2.VerifyResponse) -> None:
    del message.logprobs[:]


def one_too_few(message: verifier_pb2.VerifyResponse) -> None:
    del message.logprobs[-1]


def not_a_number(message: verifier_pb2.VerifyResponse) -> None:
    message.logprobs[-1].logprob = math.nan


def infinite(message: verifier_pb2.VerifyResponse) -> None:
    message.logprobs[0].top_logprobs[-1] = -math.inf


def likelier_than_certain(message: verifier_pb2.VerifyResponse) -> None:
    message.logprobs[0].logprob = 0.1


def another_for_the_same_token(message: verifier_pb2.VerifyResponse) -> None:
    message.logprobs[-1].logprob -= 1
    message.logprobs[-1].top_token_ids[0] = message.next_token_id


def not_sorted(message: verifier_pb2.VerifyResponse) -> None:
    message.logprobs[0].top_logprobs[:] = [-3, -2, -4]


def more_than_all(message: verifier_pb2.VerifyResponse) -> None:
    message.logprobs[0].top_logprobs[:] = [-0.1, -0.1, -0.1]


def more_than_asked_for(message: verifier_pb2.VerifyResponse) -> None:
    message.logprobs[0].top_token_ids.append(7)
    message.logprobs[0].top_logprobs.append(-90)


def no_pairs(message: verifier_pb2.VerifyResponse) -> None:
    message.logprobs[0].top_token_ids.pop()


def a_token_twice(message: verifier_pb2.VerifyResponse) -> None:
    message.logprobs[0].top_token_ids[1] = message.logprobs[0].top_token_ids[0]


def no_token(message: verifier_pb2.VerifyResponse) -> None:
    message.logprobs[0].top_token_ids[2] = VOCAB_SIZE


@pytest.mark.parametrize(
    "corrupt",
    [
        *(none_at_all, one_too_few, not_a_number, infinite, likelier_than_certain),
        *(another_for_the_same_token, not_sorted, more_than_all, more_than_asked_for),
        *(no_pairs, a_token_twice, no_token),
    ],
)
async def test_a_replica_that_tells_impossible_ones_is_not_believed(
    connect: Connect, serve: Serve, corrupt
):
    bad, good = Verifier(), Verifier()
    bad.corrupt = corrupt
    stub = await serve(await connect([bad, good], [Drafter()]))
    check(await collect(stub.Generate(request(num_top_logprobs=NUM_TOP))))
    assert bad.requests


async def test_unasked_ones_are_not_believed_either(connect: Connect, serve: Serve):
    bad, good = Verifier(), Verifier()
    bad.corrupt = lambda message: message.logprobs.add(logprob=-1)
    stub = await serve(await connect([bad, good], [Drafter()]))
    answer = await collect(stub.Generate(request()))
    assert logprobs(answer) == []
    assert bad.requests


@pytest.mark.parametrize("sampling", [GREEDY, COUPLED], ids=["greedy", "coupled"])
async def test_a_resumed_answer_goes_on_with_them_after_what_its_client_has(
    connect: Connect,
    serve: Serve,
    store_on: StoreOn,
    redis_server: RedisServer,
    sampling: dict[str, object],
):
    """More is stored than the client has; it is said again, because the store lacks these."""
    verifier, hold = Verifier(), Hold()
    behind = await connect([verifier], [Drafter(agreement=1)])
    first, second = [await serve(behind, store_on(redis_server.url)) for _ in range(2)]
    verifier.faults.extend([passing, passing, passing, hold])
    asked = request(sampling=sampling, num_top_logprobs=NUM_TOP)
    call = first.Generate(asked)
    begun = await collect(call, num_chunks=3)
    call.cancel()
    verifier.faults.clear()
    kept = Answer(begun.started, begun.chunks[:1])
    rest = await collect(second.Resume(resuming(kept)))
    check(kept.then(rest))
    # What the second said is now stored, and nothing of the first's.
    again = await collect(first.Resume(resuming(kept, epoch=3)))
    assert again.tokens == rest.tokens
    assert [len(chunk.logprobs) for chunk in again.chunks] == [
        len(chunk.token_ids) for chunk in again.chunks
    ]


async def test_an_answer_without_a_session_goes_on_with_them(connect: Connect, serve: Serve):
    stub = await serve(await connect([Verifier()], [Drafter()]))
    asked = request(num_top_logprobs=NUM_TOP)
    begun = await collect(stub.Generate(asked), num_chunks=2)
    asked.epoch = 2
    asked.sampling.seed = begun.started.seed
    asked.received.CopyFrom(begun.received)
    check(begun.then(await collect(stub.Generate(asked))))
