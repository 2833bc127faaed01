"""An orchestrator that knows its callers: what each may use, and what it learns of the others."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.orchestrator.answers import NUM_TOKENS, Answer, collect, request
from tests.orchestrator.face import CHATML, template
from tests.orchestrator.peers import Hold, Verifier
from tests.servers import running_server
from tests.serving.conftest import RedisServer

from specmesh.client.answers.scores import score_from
from specmesh.orchestrator.__main__ import OrchestratorService
from specmesh.orchestrator.requests.prompts import MAX_AT_WORK, MAX_WAITING
from specmesh.orchestrator.settings import OrchestratorSettings
from specmesh.serving.errors import error_info, retry_after_s
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import scoring_pb2, session_pb2, tokenizer_pb2
from specmesh.v1.generation_pb2_grpc import GenerationServiceStub
from specmesh.v1.tokenizer_pb2_grpc import TokenizerServiceStub

ALICE, BOB = ((("authorization", f"Bearer {name}"),) for name in ("alice", "bob"))

Serve = Callable[..., Awaitable[Any]]


@pytest.fixture
async def verifier() -> AsyncIterator[Verifier]:
    verifier = Verifier()
    await verifier.start()
    yield verifier
    await verifier.die()


@pytest.fixture
async def serve(verifier: Verifier, tmp_path: Path) -> AsyncIterator[Serve]:
    """An orchestrator that asks for the tokens of alice and bob."""
    tokens = tmp_path / "tokens.json"
    tokens.write_text(
        json.dumps(
            [
                {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()}
                for name in ("alice", "bob")
            ]
        )
    )
    async with AsyncExitStack() as stack:

        async def serving(*, tokenizer: bool = False, **more: Any) -> Any:
            fixed = {"port": 0, "verifiers": verifier.address, "strategy": "autoregressive"}
            chosen = {"drain_seconds": 0, "tokens": tokens} | more
            settings = OrchestratorSettings(**fixed, **chosen)
            address = await stack.enter_async_context(
                running_server(settings, OrchestratorService(settings))
            )
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
            return (TokenizerServiceStub if tokenizer else GenerationServiceStub)(channel)

        yield serving


def ask(stub: GenerationServiceStub, identity: Any, **fields: Any) -> Any:
    return stub.Generate(request(**fields), metadata=identity, timeout=60)


async def refused(call: Any) -> tuple[str, float]:
    """The limit that was reached, and the time after which to come again."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(call)
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    info, again_s = error_info(raised.value), retry_after_s(raised.value)
    assert info is not None
    assert again_s is not None
    assert info.reason == "LIMIT_REACHED"
    return info.metadata["limit"], again_s


async def test_one_answer_too_many_is_refused_and_those_of_others_are_not(
    serve: Serve, verifier: Verifier
):
    stub = await serve(max_answers_per_identity=1)
    verifier.always = hold = Hold()
    running, answer = aiter(ask(stub, ALICE)), Answer()
    answer.add((await anext(running)).event)
    await hold.reached.wait()
    assert (await refused(ask(stub, ALICE)))[0] == "answers"
    hold.released.set()
    assert len((await collect(ask(stub, BOB))).tokens) == NUM_TOKENS
    assert len((await collect(running, begun=answer)).tokens) == NUM_TOKENS
    assert len((await collect(ask(stub, ALICE))).tokens) == NUM_TOKENS


@pytest.mark.parametrize("limit", ["tokens_per_minute", "verified_nodes_per_minute"])
async def test_an_answer_is_finished_beyond_the_limit_and_the_next_waits(serve: Serve, limit: str):
    stub = await serve(**{f"max_{limit}": 10})
    assert len((await collect(ask(stub, ALICE))).tokens) == NUM_TOKENS
    name, again_s = await refused(ask(stub, ALICE))
    assert name == limit
    assert again_s == pytest.approx((NUM_TOKENS - 10) * 6, rel=0.2)
    assert len((await collect(ask(stub, BOB))).tokens) == NUM_TOKENS


@pytest.mark.parametrize("method", ["GetSession", "CancelSession", "Resume"])
async def test_a_session_is_not_found_by_another_identity(
    serve: Serve, redis_server: RedisServer, method: str
):
    stub = await serve(redis_url=redis_server.url)
    call = ask(stub, ALICE)
    started = (await call.read()).event.started
    named = {"session_id": started.session_id, "resume_token": started.resume_token}

    def carried_on(identity: Any) -> Any:
        if method == "Resume":
            return stub.Resume(pb.ResumeRequest(epoch=2, **named), metadata=identity).read()
        asked = getattr(session_pb2, f"{method}Request")(**named)
        return getattr(stub, method)(asked, metadata=identity)

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await carried_on(BOB)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    info = error_info(refused.value)
    assert info is not None
    assert info.reason == "SESSION_NOT_FOUND"
    await carried_on(ALICE)


async def test_limits_are_looked_at_before_a_prompt_is(serve: Serve):
    stub = await serve(max_tokens_per_minute=10)
    await collect(ask(stub, ALICE))
    unreadable = request(text="x" * 1_000_000)
    assert (await refused(stub.Generate(unreadable, metadata=ALICE, timeout=60)))[0] == (
        "tokens_per_minute"
    )
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await collect(stub.Generate(unreadable, metadata=BOB, timeout=60))
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


WORK = [
    ("Tokenize", tokenizer_pb2.TokenizeRequest(text="def f(x): return x")),
    ("Detokenize", tokenizer_pb2.DetokenizeRequest(token_ids=range(10, 30))),
    (
        "ApplyChatTemplate",
        tokenizer_pb2.ApplyChatTemplateRequest(chat={"messages": [{"role": "a", "content": "b"}]}),
    ),
]


@pytest.mark.parametrize(("method", "asked"), WORK, ids=[name for name, _ in WORK])
async def test_what_is_read_without_an_answer_counts_too(
    serve: Serve, verifier: Verifier, method: str, asked: Any
):
    verifier.chat_template = template(CHATML)
    stub = await serve(max_request_bytes_per_minute=5, tokenizer=True)
    call = getattr(stub, method)
    assert await call(asked, metadata=ALICE, timeout=60)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call(asked, metadata=ALICE, timeout=60)
    info = error_info(raised.value)
    assert info is not None
    assert (info.reason, info.metadata["limit"]) == ("LIMIT_REACHED", "request_bytes_per_minute")
    assert await call(asked, metadata=BOB, timeout=60)


async def test_long_texts_of_one_identity_leave_room_for_those_of_others(
    serve: Serve, verifier: Verifier
):
    verifier.info.context_tokens = 1 << 20
    stub = await serve(tokenizer=True)
    long = tokenizer_pb2.TokenizeRequest(text="def f(x): return x\n" * 20_000)
    many = [
        asyncio.create_task(outcome(stub.Tokenize(long, metadata=ALICE, timeout=60)))
        for _ in range(2 * (MAX_AT_WORK + MAX_WAITING))
    ]
    assert grpc.StatusCode.RESOURCE_EXHAUSTED in {await first for first in many[-4:]}
    shorter = tokenizer_pb2.TokenizeRequest(text="def f(x): return x\n" * 500)
    assert await outcome(stub.Tokenize(shorter, metadata=BOB, timeout=60)) is grpc.StatusCode.OK
    assert not all(each.done() for each in many)
    for each in many:
        each.cancel()


async def outcome(call: Any) -> grpc.StatusCode:
    return await call.code()


async def salts(serve: Serve, verifier: Verifier, **settings: Any) -> list[set[bytes]]:
    """The salts of the prefixes that the target gets for alice, alice again and bob."""
    stub = await serve(**settings)
    found = []
    for identity in (ALICE, ALICE, BOB):
        verifier.requests.clear()
        await collect(ask(stub, identity))
        found.append({request.prefix.salt for request in verifier.requests})
    return found


async def test_cached_prefixes_are_kept_apart_by_identity(serve: Serve, verifier: Verifier):
    alice, again, bob = await salts(serve, verifier)
    assert len(alice) == len(bob) == 1
    assert alice == again != bob
    assert b"" not in alice | bob


async def test_cached_prefixes_are_shared_where_that_is_asked_for(serve: Serve, verifier: Verifier):
    assert await salts(serve, verifier, share_prefixes="all") == [{b""}] * 3


async def test_a_cache_salt_keeps_the_requests_of_one_caller_apart(
    serve: Serve, verifier: Verifier
):
    stub = await serve()
    found = []
    for salt in ("", "a", "b", "a"):
        verifier.requests.clear()
        await collect(ask(stub, ALICE, cache_salt=salt))
        scored = scoring_pb2.ScoreRequest(text="a word or two", cache_salt=salt)
        await score_from(stub.Score(scored, metadata=ALICE))
        (used,) = {request.prefix.salt for request in verifier.requests}
        found.append(used)
    assert found[1] == found[3]
    assert len(set(found)) == 3


async def test_nobody_is_told_apart_where_nobody_is_known(serve: Serve, verifier: Verifier):
    assert await salts(serve, verifier, tokens=None) == [{b""}] * 3
