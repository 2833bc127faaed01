"""What the session store promises, against a real Redis."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis
from tests.serving.acl import as_documented

from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import (
    CANCELLED,
    Claim,
    Generated,
    SessionIdTaken,
    SessionNotFound,
    SessionStart,
    StaleEpoch,
    StoreConflict,
    StoredSessionCancelled,
    Writer,
)

if TYPE_CHECKING:
    from tests.serving.conftest import RedisServer

PROMPT = (7, 0, 2**31 - 1)
REQUEST = b"\x00a request\xff"
SECRET = b"\xffsecret\x00"
FIRST, SECOND, THIRD = (Writer(epoch, f"writer {epoch}") for epoch in (1, 2, 3))
NOTHING = Generated()


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[SessionStore]:
    # Patient, so that a busy machine fails no test that is not about time.
    store = SessionStore.from_url(as_documented(redis_server.url), timeout_s=10)
    yield store
    await store.aclose()


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_server.url) as redis:
        yield redis


@pytest.fixture
def session() -> SessionStart:
    claim = Claim(uuid.uuid4().hex, SECRET, owner="")
    return SessionStart(claim, model="digest", request=REQUEST, prompt=PROMPT)


async def keys_of(redis: Redis, session: SessionStart) -> set[bytes]:
    return set(await redis.keys(f"*{session.session_id}*"))


async def take(
    store: SessionStore, session: SessionStart, writer: Writer, received: Generated = NOTHING
) -> Generated:
    taker, generated = await store.take(session.claim, writer.epoch, writer.writer_id, received)
    assert taker == writer
    return generated


async def test_successor_finds_all_that_was_committed(
    store: SessionStore, session: SessionStart
) -> None:
    await store.put(session, FIRST, Generated((9,)))
    await store.append(session.session_id, FIRST, first_index=1, token_ids=[10, 11])
    await store.append(session.session_id, FIRST, first_index=3, token_ids=[12])

    assert (await store.read(session.claim)).session == session
    assert await take(store, session, SECOND) == Generated((9, 10, 11, 12))
    await store.append(session.session_id, SECOND, first_index=4, token_ids=[13])
    assert await store.read_prefix(session.session_id, 100) == (*PROMPT, 9, 10, 11, 12, 13)


async def test_successor_may_want_exactly_what_its_client_has(
    store: SessionStore, session: SessionStart
) -> None:
    await store.put(session, FIRST, Generated((9, 10, 11)))
    has = Generated((9,))
    taken = await store.take(session.claim, SECOND.epoch, SECOND.writer_id, has, exactly=True)
    assert taken == (SECOND, has)
    await store.append(session.session_id, SECOND, first_index=1, token_ids=[12])
    assert await store.read_prefix(session.session_id, 100) == (*PROMPT, 9, 12)


@pytest.mark.parametrize("writer", [FIRST, Writer(2, "another")])
async def test_writer_that_lost_its_session_is_fenced_off(
    store: SessionStore, session: SessionStart, writer: Writer
) -> None:
    await store.put(session, FIRST, NOTHING)
    await take(store, session, SECOND)
    for write in (
        store.put(session, writer, Generated((10,))),
        store.append(session.session_id, writer, first_index=0, token_ids=[10]),
        store.finish(session.session_id, writer, 0, "LENGTH"),
        take(store, session, writer),
    ):
        with pytest.raises(StaleEpoch) as stale:
            await write
        assert stale.value.current_epoch == 2
    assert await store.read_prefix(session.session_id, 100) == PROMPT


async def test_one_of_many_takers_with_the_same_epoch_wins(
    store: SessionStore, session: SessionStart
) -> None:
    await store.put(session, FIRST, NOTHING)
    outcomes = await asyncio.gather(
        *(take(store, session, Writer(2, f"taker {i}")) for i in range(20)),
        return_exceptions=True,
    )
    assert [outcome for outcome in outcomes if not isinstance(outcome, StaleEpoch)] == [NOTHING]


async def test_reading_a_session_takes_nothing(store: SessionStore, session: SessionStart) -> None:
    await store.put(session, FIRST, NOTHING)
    await store.read(session.claim)
    await store.append(session.session_id, FIRST, first_index=0, token_ids=[10])


@pytest.mark.parametrize(
    "changes",
    [
        *({"resume_token": b""}, {"resume_token": b"wrong"}),
        {"resume_token": hashlib.sha256(SECRET).digest()},
        {"owner": "another"},
    ],
)
async def test_who_does_not_know_the_secret_or_is_not_the_owner_finds_no_session(
    store: SessionStore, session: SessionStart, changes: dict[str, Any]
) -> None:
    await store.put(session, FIRST, NOTHING)
    claim = replace(session.claim, **changes)
    for call in (
        store.read(claim),
        store.take(claim, 2, "writer", NOTHING),
        store.take(claim, None, "writer", NOTHING),
        store.cancel(claim),
    ):
        with pytest.raises(SessionNotFound):
            await call
    with pytest.raises(StaleEpoch):
        await store.put(replace(session, claim=claim), SECOND, NOTHING)
    with pytest.raises(SessionIdTaken):
        await store.begin(replace(session, claim=claim), SECOND, NOTHING)
    await store.append(session.session_id, FIRST, first_index=0, token_ids=[10])


async def test_secret_is_not_stored(
    store: SessionStore, redis: Redis, session: SessionStart
) -> None:
    await store.put(session, FIRST, NOTHING)
    assert SECRET not in b"".join([await redis.dump(key) for key in await keys_of(redis, session)])


@pytest.mark.parametrize(
    ("received", "goes_on_from"),
    [
        ((), (10, 11, 12)),
        ((10, 11), (10, 11, 12)),
        ((10, 11, 12), (10, 11, 12)),
        ((10, 11, 12, 13), (10, 11, 12, 13)),
        ((10, 99), (10, 99)),
        ((99, 11, 12, 13), (99, 11, 12, 13)),
    ],
)
async def test_session_goes_on_from_what_its_client_has(
    store: SessionStore,
    session: SessionStart,
    received: tuple[int, ...],
    goes_on_from: tuple[int, ...],
) -> None:
    await store.put(session, FIRST, Generated((10, 11, 12)))
    taken = await take(store, session, SECOND, Generated(received))
    assert taken == Generated(goes_on_from)
    assert await store.read_prefix(session.session_id, 100) == (*PROMPT, *goes_on_from)


async def test_every_key_expires_and_shares_the_hash_tag_and_the_meshs_prefix(
    redis_server: RedisServer, redis: Redis, session: SessionStart
) -> None:
    store = SessionStore.from_url(
        as_documented(redis_server.url), prefix="blue", timeout_s=10, ttl_s=500
    )
    await store.put(session, FIRST, NOTHING)
    await store.append(session.session_id, FIRST, first_index=0, token_ids=[10])
    await take(store, session, SECOND)
    keys = await keys_of(redis, session)
    assert len(keys) == 2
    for key in keys:
        assert key.startswith(b"blue:{%b}:" % session.session_id.encode())
        assert 400 < await redis.ttl(key) <= 500
    await store.finish(session.session_id, SECOND, 1, "LENGTH")
    for key in keys:
        assert 0 < await redis.ttl(key) <= 60
    assert await take(store, session, THIRD) == Generated((10,))
    for key in keys:
        assert 400 < await redis.ttl(key) <= 500
    await store.aclose()


async def test_meshes_of_different_prefixes_share_a_redis_and_no_session(
    store: SessionStore, redis_server: RedisServer, session: SessionStart
) -> None:
    await store.put(session, FIRST, NOTHING)
    other = SessionStore.from_url(as_documented(redis_server.url), prefix="other", timeout_s=10)
    with pytest.raises(SessionNotFound):
        await other.read(session.claim)
    await other.aclose()


@pytest.mark.parametrize(
    ("first_index", "token_ids", "committed"),
    [
        (0, [10, 11], (10, 11)),
        (1, [11], (10, 11)),
        (0, [10], (10, 11)),
        (0, [10, 11, 12], (10, 11, 12)),
        (1, [11, 12, 13], (10, 11, 12, 13)),
        (2, [], (10, 11)),
    ],
)
async def test_append_passes_over_what_is_stored(
    store: SessionStore,
    session: SessionStart,
    first_index: int,
    token_ids: list[int],
    committed: tuple[int, ...],
) -> None:
    await store.put(session, FIRST, Generated((10, 11)))
    for _ in range(2):
        await store.append(session.session_id, FIRST, first_index=first_index, token_ids=token_ids)
    assert await store.read_prefix(session.session_id, 100) == (*PROMPT, *committed)


@pytest.mark.parametrize(
    ("first_index", "token_ids"), [(3, [12]), (1, [99]), (1, [99, 12]), (0, [10, 99])]
)
async def test_append_that_does_not_fit_changes_nothing(
    store: SessionStore, session: SessionStart, first_index: int, token_ids: list[int]
) -> None:
    await store.put(session, FIRST, Generated((10, 11)))
    with pytest.raises(StoreConflict):
        await store.append(session.session_id, FIRST, first_index=first_index, token_ids=token_ids)
    assert await store.read_prefix(session.session_id, 100) == (*PROMPT, 10, 11)


async def test_writer_whose_take_over_redis_lost_puts_the_session_again(
    store: SessionStore, session: SessionStart
) -> None:
    """As after a failover to a replica that lags."""
    await store.put(session, FIRST, Generated((10,)))
    with pytest.raises(StoreConflict, match="earlier epoch"):
        await store.append(session.session_id, SECOND, first_index=1, token_ids=[11])
    with pytest.raises(StoreConflict, match="earlier epoch"):
        await store.finish(session.session_id, SECOND, 1, "LENGTH")
    await store.put(session, SECOND, Generated((20, 21)))
    assert await store.read_prefix(session.session_id, 100) == (*PROMPT, 20, 21)
    with pytest.raises(StaleEpoch):
        await store.append(session.session_id, FIRST, first_index=1, token_ids=[11])


async def test_put_that_runs_late_takes_nothing_back(
    store: SessionStore, session: SessionStart
) -> None:
    await store.put(session, FIRST, Generated((10,)))
    await store.append(session.session_id, FIRST, first_index=1, token_ids=[11])
    await store.put(session, FIRST, Generated((10,)))
    assert await store.read_prefix(session.session_id, 100) == (*PROMPT, 10, 11)


async def test_unknown_session_is_not_found(store: SessionStore) -> None:
    nobodys = Claim("nobody's", SECRET, owner="")
    for call in (
        store.append("nobody's", FIRST, first_index=0, token_ids=[10]),
        store.finish("nobody's", FIRST, 0, "LENGTH"),
        store.read(nobodys),
        store.take(nobodys, 2, "writer", NOTHING),
        store.cancel(nobodys),
        store.read_prefix("nobody's", 1),
    ):
        with pytest.raises(SessionNotFound):
            await call


@pytest.mark.parametrize("num_prompt_tokens", [len(PROMPT) - 1, len(PROMPT) + 1])
async def test_a_put_mends_the_length_of_the_prompt(
    store: SessionStore, redis: Redis, session: SessionStart, num_prompt_tokens: int
) -> None:
    generated = Generated((9, 10))
    await store.put(session, FIRST, generated)
    (key,) = [key for key in await keys_of(redis, session) if key.endswith(b"session")]
    await redis.hset(key, "num_prompt_tokens", num_prompt_tokens)
    with pytest.raises(StoreConflict):
        await store.finish(session.session_id, FIRST, 2, "LENGTH")
    await store.put(session, FIRST, generated)
    await store.finish(session.session_id, FIRST, 2, "LENGTH")
    assert (await store.read(session.claim)).session == session


async def test_session_whose_tokens_redis_evicted_is_not_found_and_is_put_again(
    store: SessionStore, redis: Redis, session: SessionStart
) -> None:
    await store.put(session, FIRST, Generated((10,)))
    await redis.delete(f"specmesh:{{{session.session_id}}}:tokens")
    with pytest.raises(SessionNotFound):
        await take(store, session, SECOND)
    await store.put(session, FIRST, Generated((10,)))
    assert await take(store, session, SECOND) == Generated((10,))


async def test_session_is_begun_once(store: SessionStore, session: SessionStart) -> None:
    begun = await asyncio.gather(
        *(store.begin(session, Writer(1, f"writer {i}"), Generated((i,))) for i in range(20))
    )
    assert sum(begun) == 1
    winner = begun.index(True)
    assert (await store.read(session.claim)).generated == Generated((winner,))
    await store.append(
        session.session_id, Writer(1, f"writer {winner}"), first_index=1, token_ids=[]
    )


async def test_who_has_lost_count_takes_the_next_epoch(
    store: SessionStore, session: SessionStart
) -> None:
    await store.put(session, SECOND, Generated((10, 11)))
    taken = await store.take(session.claim, None, "a", Generated((10,)))
    assert taken == (Writer(3, "a"), Generated((10, 11)))
    assert await store.take(session.claim, None, "b", Generated((12,))) == (
        Writer(4, "b"),
        Generated((12,)),
    )
    with pytest.raises(StaleEpoch):
        await store.append(session.session_id, Writer(3, "a"), first_index=2, token_ids=[13])


async def test_reader_learns_how_far_a_session_has_got_and_keeps_it_no_longer(
    redis_server: RedisServer, redis: Redis, session: SessionStart
) -> None:
    store = SessionStore.from_url(as_documented(redis_server.url), timeout_s=10, ttl_s=500)
    await store.put(session, SECOND, Generated((10, 11), frozenset({1})))
    for key in await keys_of(redis, session):
        await redis.expire(key, 100)
    stored = await store.read(session.claim)
    assert (stored.session, stored.epoch, stored.ended) == (session, 2, "")
    assert stored.generated == Generated((10, 11), frozenset({1}))
    assert 90 < stored.expires_in_s <= 100
    for key in await keys_of(redis, session):
        assert await redis.ttl(key) <= 100
    await store.finish(session.session_id, SECOND, 2, "LENGTH")
    stored = await store.read(session.claim)
    assert stored.ended == "LENGTH"
    assert 50 < stored.expires_in_s <= 60
    await store.aclose()


async def test_session_that_lacks_tokens_is_not_finished(
    store: SessionStore, session: SessionStart
) -> None:
    """As after a failover between the last append and the end."""
    await store.put(session, FIRST, Generated((10,)))
    with pytest.raises(StoreConflict, match="not all"):
        await store.finish(session.session_id, FIRST, 2, "LENGTH")
    assert (await store.read(session.claim)).ended == ""


async def test_tokens_that_its_writer_has_not_written_are_no_part_of_a_finished_session(
    store: SessionStore, redis: Redis, session: SessionStart
) -> None:
    await store.put(session, FIRST, Generated((10, 11)))
    (key,) = [key for key in await keys_of(redis, session) if key.endswith(b"tokens")]
    await redis.append(key, b"\x05\0\0\0")
    await store.finish(session.session_id, FIRST, 2, "LENGTH")
    finished = await store.read(session.claim)
    assert (finished.generated.token_ids, finished.ended) == ((10, 11), "LENGTH")
    assert 0 < await redis.ttl(key) <= 60


@pytest.mark.parametrize(
    ("received", "ended"), [((), "STOP"), ((10,), "STOP"), ((10, 11), ""), ((99,), "")]
)
async def test_finished_session_stays_finished_unless_its_client_has_other_tokens(
    store: SessionStore, session: SessionStart, received: tuple[int, ...], ended: str
) -> None:
    await store.put(session, FIRST, Generated((10,)))
    await store.finish(session.session_id, FIRST, 1, "STOP")
    await take(store, session, SECOND, Generated(received))
    assert (await store.read(session.claim)).ended == ended


async def test_session_that_goes_on_after_its_end_has_not_ended(
    store: SessionStore, session: SessionStart
) -> None:
    await store.put(session, FIRST, Generated((10,)))
    await store.finish(session.session_id, FIRST, 1, "STOP")
    await store.append(session.session_id, FIRST, first_index=0, token_ids=[10])
    assert (await store.read(session.claim)).ended == "STOP"
    await store.append(session.session_id, FIRST, first_index=0, token_ids=[10, 11])
    assert (await store.read(session.claim)).ended == ""


async def test_cancelled_session_is_nobodys_to_write_or_take(
    redis: Redis, store: SessionStore, session: SessionStart
) -> None:
    await store.put(session, FIRST, Generated((10,)))
    for _ in range(2):
        await store.cancel(session.claim)
    for call in (
        store.append(session.session_id, FIRST, first_index=1, token_ids=[11]),
        store.finish(session.session_id, FIRST, 1, "LENGTH"),
        store.put(session, FIRST, Generated((10, 11))),
        store.put(session, SECOND, Generated((20,))),
        take(store, session, SECOND),
        store.take(session.claim, None, "writer", NOTHING),
    ):
        with pytest.raises(StoredSessionCancelled):
            await call
    assert not await store.begin(session, SECOND, NOTHING)
    stored = await store.read(session.claim)
    assert (stored.ended, stored.generated) == (CANCELLED, Generated((10,)))
    for key in await keys_of(redis, session):
        assert 0 < await redis.ttl(key) <= 60


async def test_cancelling_a_finished_session_changes_nothing(
    store: SessionStore, session: SessionStart
) -> None:
    await store.put(session, FIRST, Generated((10,)))
    await store.finish(session.session_id, FIRST, 1, "LENGTH")
    await store.cancel(session.claim)
    assert (await store.read(session.claim)).ended == "LENGTH"
    assert await take(store, session, SECOND) == Generated((10,))


async def test_prefix_is_cut_to_length(store: SessionStore, session: SessionStart) -> None:
    await store.put(session, FIRST, Generated((10, 11)))
    assert await store.read_prefix(session.session_id, 1) == (7,)
    assert await store.read_prefix(session.session_id, 4) == (*PROMPT, 10)


async def test_prefix_ends_with_the_last_whole_token(
    store: SessionStore, redis: Redis, session: SessionStart
) -> None:
    await store.put(session, FIRST, Generated((10,)))
    _, tokens = sorted(await keys_of(redis, session))
    await redis.append(tokens, b"\x01")
    assert await store.read_prefix(session.session_id, 9) == (*PROMPT, 10)


async def test_nonsense_from_the_caller_is_a_value_error(
    store: SessionStore, session: SessionStart
) -> None:
    with pytest.raises(ValueError, match="prompt"):
        await store.put(replace(session, prompt=()), FIRST, NOTHING)
    with pytest.raises(ValueError, match="first_index"):
        await store.append(session.session_id, FIRST, first_index=-1, token_ids=[10])
    with pytest.raises(ValueError, match="length"):
        await store.read_prefix(session.session_id, 0)


async def test_successor_learns_which_tokens_the_target_did_not_check(
    store: SessionStore, session: SessionStart
) -> None:
    await store.put(session, FIRST, Generated((2**31 - 1, 5, 6), frozenset({0, 2})))
    await store.append(session.session_id, FIRST, first_index=2, token_ids=[6, 7], unchecked=[0])
    taken = await take(store, session, SECOND)
    assert taken == Generated((2**31 - 1, 5, 6, 7), frozenset({0, 2}))
    assert await store.read_prefix(session.session_id, 4) == (*PROMPT, 2**31 - 1)
    # Marks are part of what a client has.
    others = Generated((2**31 - 1, 5), frozenset({1}))
    assert await take(store, session, THIRD, others) == others
