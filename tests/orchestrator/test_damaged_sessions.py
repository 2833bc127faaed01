"""A stored session that something has damaged loses nobody's answer, and is counted and logged."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import grpc
import pytest
from redis.asyncio import Redis
from tests.metrics import recorded
from tests.orchestrator.answers import (
    NUM_TOKENS,
    PROMPT_IDS,
    Answer,
    alone,
    collect,
    refusal,
    request,
    resuming,
)
from tests.orchestrator.model import VOCAB_SIZE
from tests.orchestrator.peers import Drafter, Hold, Verifier, passing

from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import Claim, StoredSession
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import generation_pb2_grpc, session_pb2

__all__ = ["recorded"]

COUPLED = request(sampling={"temperature": 0.8, "seed": 11})
NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
Stub = generation_pb2_grpc.GenerationServiceStub


class Stored(NamedTuple):
    """The two keys of a session."""

    redis: Redis
    session: bytes
    tokens: bytes

    async def set(self, **fields: str | bytes | int) -> None:
        await self.redis.hset(self.session, mapping=fields)

    async def write(self, place: int, value: int) -> None:
        """Write a token over that in a place, counted from the prompt's first."""
        await self.redis.setrange(self.tokens, 4 * place, struct.pack("<I", value))

    async def cut(self, num_bytes: int) -> None:
        held = await self.redis.get(self.tokens)
        await self.redis.set(self.tokens, held[:num_bytes], keepttl=True)

    async def without(self, *fields: str) -> None:
        await self.redis.hdel(self.session, *fields)

    async def retype(self, key: bytes) -> None:
        """Put a list in the place of a key."""
        await self.redis.delete(key)
        await self.redis.lpush(key, "x")


FIRST_GENERATED = len(PROMPT_IDS)
Damage = Callable[[Stored], Awaitable[None]]
DAMAGES: dict[str, Damage] = {
    "request is no message": lambda it: it.set(request=b"\xff\xff"),
    "request is empty": lambda it: it.set(request=b""),
    "request is another's": lambda it: it.set(request=request().SerializeToString()),
    "model is another": lambda it: it.set(model="other"),
    "model is no text": lambda it: it.set(model=b"\xff"),
    "prompt has a token that there isn't": lambda it: it.write(2, VOCAB_SIZE),
    "prompt has another token": lambda it: it.write(2, PROMPT_IDS[2] ^ 1),
    "prompt is longer": lambda it: it.set(num_prompt_tokens=len(PROMPT_IDS) + 1),
    "prompt is shorter": lambda it: it.set(num_prompt_tokens=len(PROMPT_IDS) - 1),
    "prompt is longer than all": lambda it: it.set(num_prompt_tokens=10**6),
    "prompt has no length": lambda it: it.set(num_prompt_tokens="many"),
    "tokens end in the prompt": lambda it: it.cut(12),
    "tokens end in a token": lambda it: it.cut(4 * FIRST_GENERATED + 2),
    "epoch is huge": lambda it: it.set(epoch=10**9),
    "epoch is no epoch": lambda it: it.set(epoch=2**60),
    "epoch is no number": lambda it: it.set(epoch="first"),
    "session is of another type": lambda it: it.retype(it.session),
    "tokens are of another type": lambda it: it.retype(it.tokens),
    "fields are missing": lambda it: it.without("writer", "secret"),
}
OF_THE_ANSWER: dict[str, Damage] = {
    "answer has a token that there isn't": lambda it: it.write(FIRST_GENERATED + 1, VOCAB_SIZE),
    "answer is longer than it may be": lambda it: it.write(FIRST_GENERATED + NUM_TOKENS, 7),
}
"""The rest of the session is as it was, and goes on from what the client has."""
LATE = DAMAGES | {name: damage for name, damage in OF_THE_ANSWER.items() if "longer" in name}
"""Whoever resumes is refused; damage within what the client has is made good at once."""


@pytest.fixture
async def redis(redis_server):
    async with Redis.from_url(redis_server.url) as redis:
        yield redis


@pytest.fixture
def verifier() -> Verifier:
    return Verifier()


@pytest.fixture
async def stubs(connect, serve, store_on, redis_server, verifier) -> tuple[Stub, Stub]:
    """Two orchestrators of one mesh and one Redis."""
    drafter = Drafter()
    first, second = [
        await serve(await connect([verifier], [drafter]), store_on(redis_server.url, timeout_s=10))
        for _ in range(2)
    ]
    return first, second


async def stored_of(redis: Redis, answer: Answer) -> Stored:
    session, tokens = sorted(await redis.keys(f"*{answer.started.session_id}*"))
    return Stored(redis, session, tokens)


def without_store(asked: pb.GenerateRequest, begun: Answer) -> pb.GenerateRequest:
    rest = pb.GenerateRequest()
    rest.CopyFrom(asked)
    rest.epoch = begun.started.epoch + 2
    rest.received.CopyFrom(begun.received)
    rest.received.prompt_digest = begun.started.prompt_digest
    return rest


async def dropped(stub: Stub, asked: pb.GenerateRequest) -> Answer:
    call = stub.Generate(asked)
    begun = await collect(call, num_chunks=2)
    call.cancel()
    return begun


def damages_told(caplog) -> int:
    return sum(each.getMessage() == "stored session is damaged" for each in caplog.records)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_an_answer_goes_on_from_what_its_client_has(stubs, redis, caplog, recorded, damage):
    caplog.set_level(logging.WARNING)
    first, second = stubs
    begun = await dropped(first, COUPLED)
    await damage(await stored_of(redis, begun))
    assert await refusal(second.Resume(resuming(begun))) == NOT_FOUND
    assert damages_told(caplog) == 1
    assert [point.value for point in recorded.points("specmesh.sessions.damaged")] == [1]
    rest = await collect(second.Generate(without_store(COUPLED, begun)))
    assert begun.then(rest).tokens == alone(COUPLED.sampling)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_one_with_a_name_keeps_its_session(stubs, redis, damage, request):
    first, second = stubs
    asked = pb.GenerateRequest()
    asked.CopyFrom(COUPLED)
    asked.request_id = request.node.name[-128:]
    begun = await dropped(first, asked)
    await damage(await stored_of(redis, begun))
    rest = await collect(second.Generate(without_store(asked, begun)))
    assert begun.then(rest).tokens == alone(COUPLED.sampling)


@pytest.mark.parametrize("damage", LATE.values(), ids=LATE)
async def test_damage_between_reading_a_session_and_taking_it_is_found_as_well(
    stubs, redis, caplog, monkeypatch, damage
):
    caplog.set_level(logging.WARNING)
    first, second = stubs
    begun = await dropped(first, COUPLED)
    stored, read = await stored_of(redis, begun), SessionStore.read

    async def read_and_damaged(store: SessionStore, claim: Claim) -> StoredSession:
        found = await read(store, claim)
        await damage(stored)
        return found

    with monkeypatch.context() as damaging:
        damaging.setattr(SessionStore, "read", read_and_damaged)
        assert await refusal(second.Resume(resuming(begun))) == NOT_FOUND
    assert damages_told(caplog) == 1
    rest = await collect(second.Generate(without_store(COUPLED, begun)))
    assert begun.then(rest).tokens == alone(COUPLED.sampling)


@pytest.mark.parametrize("damage", OF_THE_ANSWER.values(), ids=OF_THE_ANSWER)
async def test_a_damaged_answer_goes_on_in_its_session(stubs, redis, caplog, damage):
    caplog.set_level(logging.WARNING)
    first, second = stubs
    begun = await dropped(first, COUPLED)
    await damage(await stored_of(redis, begun))
    rest = await collect(second.Resume(resuming(begun)))
    assert begun.then(rest).tokens == alone(COUPLED.sampling)
    assert rest.started.session_id == begun.started.session_id
    assert damages_told(caplog) == 1
    # It is whole again.
    again = resuming(rest, received=pb.Received())
    assert (await collect(first.Resume(again))).tokens == alone(COUPLED.sampling)
    assert damages_told(caplog) == 1


LEAVES_TOKENS = {
    name: damage for name, damage in DAMAGES.items() if not name.startswith(("request", "model"))
}
PROMPT_IS_ANOTHER = [
    DAMAGES[f"prompt has {what}"] for what in ("a token that there isn't", "another token")
]
"""What nobody looks at while an answer is at work."""


@pytest.mark.parametrize("damage", LEAVES_TOKENS.values(), ids=LEAVES_TOKENS)
async def test_whoever_is_at_work_on_an_answer_stores_it_again(stubs, redis, verifier, damage):
    first, second = stubs
    third = Hold()
    verifier.faults.extend([passing, passing, third])
    call = first.Generate(COUPLED)
    begun = await collect(call, num_chunks=2)
    await asyncio.wait_for(third.reached.wait(), 10)
    await damage(await stored_of(redis, begun))
    third.released.set()
    whole = await collect(call, begun=begun)
    assert whole.tokens == alone(COUPLED.sampling)
    if damage not in (
        DAMAGES["prompt has a token that there isn't"],
        DAMAGES["prompt has another token"],
    ):
        again = resuming(whole, received=pb.Received())
        assert (await collect(second.Resume(again))).tokens == whole.tokens


BEFORE_SEALS = {
    name: DAMAGES[name]
    for name in (
        "request is no message",
        "model is no text",
        "prompt has a token that there isn't",
        "prompt has another token",
        "epoch is no epoch",
        "epoch is no number",
        "tokens end in a token",
    )
}


@pytest.mark.parametrize("damage", BEFORE_SEALS.values(), ids=BEFORE_SEALS)
async def test_of_a_session_without_a_seal_nonsense_is_found(stubs, redis, damage):
    """Versions before 1.0 leave none."""
    first, second = stubs
    begun = await dropped(first, COUPLED)
    stored = await stored_of(redis, begun)
    await stored.without("turn", "seal")
    again = resuming(begun)
    again.received.prompt_digest = begun.started.prompt_digest
    await damage(stored)
    assert await refusal(second.Resume(again)) == NOT_FOUND


LOOKED_AT = {
    **DAMAGES,
    **OF_THE_ANSWER,
    "end is none that is known": lambda it: it.set(ended="BORED"),
    "end is no text": lambda it: it.set(ended=b"\xff"),
}


async def looked_at(stub: Stub, begun: Answer) -> grpc.StatusCode:
    """How GetSession ends."""
    started = begun.started
    claim = {"session_id": started.session_id, "resume_token": started.resume_token}
    call = stub.GetSession(session_pb2.GetSessionRequest(**claim))
    return await call.code()


@pytest.mark.parametrize("sealed", [True, False])
async def test_a_damaged_session_is_not_found_or_told_as_far_as_it_is_known(stubs, redis, sealed):
    first, second = stubs
    expected = {grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND}
    if not sealed:  # the name of another model is not known to be wrong
        expected.add(grpc.StatusCode.FAILED_PRECONDITION)
    begun = await dropped(first, COUPLED)
    stored = await stored_of(redis, begun)
    if not sealed:
        await stored.without("turn", "seal")
    whole = await redis.dump(stored.session), await redis.dump(stored.tokens)
    for damage in LOOKED_AT.values():
        await damage(stored)
        assert await looked_at(second, begun) in expected
        for key, held in zip((stored.session, stored.tokens), whole, strict=True):
            await redis.restore(key, 0, held, replace=True)
    assert await looked_at(second, begun) is grpc.StatusCode.OK


async def test_an_end_that_is_no_text_costs_the_session_and_not_the_answer(
    stubs, redis, caplog, request
):
    first, second = stubs
    named = pb.GenerateRequest()
    named.CopyFrom(COUPLED)
    named.request_id = request.node.nodeid[-128:]
    begun = await dropped(first, named)
    await (await stored_of(redis, begun)).set(ended=b"\xff")
    assert await refusal(second.Resume(resuming(begun))) == NOT_FOUND
    assert damages_told(caplog) == 1
    again = await collect(second.Generate(named))
    assert again.tokens == alone(COUPLED.sampling)


async def test_a_session_without_a_seal_is_carried_on(stubs, redis):
    first, second = stubs
    begun = await dropped(first, COUPLED)
    await (await stored_of(redis, begun)).without("turn", "seal")
    rest = await collect(second.Resume(resuming(begun)))
    assert begun.then(rest).tokens == alone(COUPLED.sampling)
