"""What the session store promises, against a real Redis."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from specmesh.serving.sessions import (
    SessionHeld,
    SessionNotFound,
    SessionRecord,
    SessionStore,
    StaleEpoch,
    StoreConflict,
)

if TYPE_CHECKING:
    from tests.serving.conftest import RedisServer

PROMPT = [7, 0, 2**31 - 1]
REQUEST = b"\x00a request\xff"


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[SessionStore]:
    # Patient, so that a busy machine fails no test that is not about time.
    store = SessionStore.from_url(redis_server.url, timeout_s=10, lease_ms=60_000)
    yield store
    await store.aclose()


@pytest.fixture
async def brief_store(redis_server: RedisServer) -> AsyncIterator[SessionStore]:
    store = SessionStore.from_url(redis_server.url, timeout_s=10, ttl_s=100, lease_ms=50)
    yield store
    await store.aclose()


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_server.url) as redis:
        yield redis


@pytest.fixture
def session_id() -> str:
    return uuid.uuid4().hex


async def create(store: SessionStore, session_id: str) -> None:
    await store.create(session_id, owner="a", request=REQUEST, prompt=PROMPT)


async def take_when_free(store: SessionStore, session_id: str, owner: str) -> SessionRecord:
    while True:
        try:
            return await store.take(session_id, owner=owner, epoch=None)
        except SessionHeld as held:
            await asyncio.sleep(held.remaining_ms / 1000)


async def keys_of(redis: Redis, session_id: str) -> set[bytes]:
    return set(await redis.keys(f"*{session_id}*"))


async def test_successor_finds_all_that_was_committed(store: SessionStore, session_id: str) -> None:
    assert await store.create(session_id, owner="a", request=REQUEST, prompt=PROMPT) == 1
    await store.append(session_id, epoch=1, first_index=0, token_ids=[10, 11])
    await store.append(session_id, epoch=1, first_index=2, token_ids=[12])

    assert await store.take(session_id, owner="b", epoch=1) == SessionRecord(
        session_id=session_id,
        epoch=2,
        request=REQUEST,
        num_prompt_tokens=3,
        token_ids=(7, 0, 2**31 - 1, 10, 11, 12),
        unchecked=frozenset(),
        finished=False,
    )
    await store.append(session_id, epoch=2, first_index=3, token_ids=[13])
    assert await store.read_prefix(session_id, 100) == (7, 0, 2**31 - 1, 10, 11, 12, 13)


async def test_owner_that_lost_its_session_is_fenced_off(
    store: SessionStore, session_id: str
) -> None:
    await create(store, session_id)
    await store.take(session_id, owner="b", epoch=1)

    for write in (
        store.append(session_id, epoch=1, first_index=0, token_ids=[10]),
        store.renew(session_id, epoch=1),
        store.finish(session_id, epoch=1),
    ):
        with pytest.raises(StaleEpoch) as stale:
            await write
        assert stale.value.current_epoch == 2
    assert await store.read_prefix(session_id, 100) == tuple(PROMPT)


async def test_one_of_many_takers_with_the_same_epoch_wins(
    store: SessionStore, session_id: str
) -> None:
    await create(store, session_id)
    outcomes = await asyncio.gather(
        *(store.take(session_id, owner=f"taker {i}", epoch=1) for i in range(20)),
        return_exceptions=True,
    )
    winners = [outcome for outcome in outcomes if isinstance(outcome, SessionRecord)]
    losers = [outcome for outcome in outcomes if isinstance(outcome, StaleEpoch)]
    assert [winner.epoch for winner in winners] == [2]
    assert [loser.current_epoch for loser in losers] == [2] * 19


async def test_epoch_too_large_for_a_lua_number_is_stale(
    store: SessionStore, redis: Redis, session_id: str
) -> None:
    await create(store, session_id)
    await redis.hset(f"specmesh:{{{session_id}}}:session", "epoch", 2**53 + 1)
    with pytest.raises(StaleEpoch) as stale:
        await store.take(session_id, owner="b", epoch=2**53)
    assert stale.value.current_epoch == 2**53 + 1


async def test_held_session_is_not_taken_without_its_epoch(
    store: SessionStore, session_id: str
) -> None:
    await create(store, session_id)
    with pytest.raises(SessionHeld) as held:
        await store.take(session_id, owner="b", epoch=None)
    assert held.value.owner == "a"
    assert 0 < held.value.remaining_ms <= 60_000


async def test_session_is_free_once_its_lease_ran_out(
    brief_store: SessionStore, session_id: str
) -> None:
    await create(brief_store, session_id)
    record = await take_when_free(brief_store, session_id, "b")
    assert record.epoch == 2
    # The taker holds it in turn, for one lease.
    assert (await take_when_free(brief_store, session_id, "c")).epoch == 3


async def test_lease_renewed_by_a_successor_names_the_successor(
    store: SessionStore, session_id: str
) -> None:
    await create(store, session_id)
    await store.take(session_id, owner="b", epoch=1)
    await store.renew(session_id, epoch=2)
    with pytest.raises(SessionHeld) as held:
        await store.take(session_id, owner="c", epoch=None)
    assert held.value.owner == "b"


@pytest.mark.parametrize("write", ["append", "renew"])
async def test_write_starts_lease_and_ttl_anew(
    store: SessionStore, brief_store: SessionStore, redis: Redis, session_id: str, write: str
) -> None:
    await create(brief_store, session_id)
    if write == "append":
        await store.append(session_id, epoch=1, first_index=0, token_ids=[10])
    else:
        await store.renew(session_id, epoch=1)
    with pytest.raises(SessionHeld) as held:
        await store.take(session_id, owner="b", epoch=None)
    assert held.value.owner == "a"
    assert held.value.remaining_ms > 50
    assert await redis.ttl(f"specmesh:{{{session_id}}}:session") > 100
    assert await redis.ttl(f"specmesh:{{{session_id}}}:tokens") > 100


async def test_every_key_expires_and_shares_the_hash_tag(
    store: SessionStore, redis: Redis, session_id: str
) -> None:
    await create(store, session_id)
    await store.append(session_id, epoch=1, first_index=0, token_ids=[10])
    await store.take(session_id, owner="b", epoch=1)
    keys = await keys_of(redis, session_id)
    assert len(keys) == 3
    for key in keys:
        assert key.startswith(b"specmesh:{%b}:" % session_id.encode())
        assert 0 < await redis.ttl(key) <= 3600


async def test_finished_session_is_free_and_still_readable(
    store: SessionStore, redis: Redis, session_id: str
) -> None:
    await create(store, session_id)
    await store.append(session_id, epoch=1, first_index=0, token_ids=[10])
    await store.finish(session_id, epoch=1)
    await store.finish(session_id, epoch=1)
    await store.renew(session_id, epoch=1)  # a heartbeat that was under way

    for epoch in (2, 3):  # nobody holds it, however often it is taken
        record = await store.take(session_id, owner="b", epoch=None)
        assert (record.epoch, record.finished) == (epoch, True)
        assert record.token_ids == (*PROMPT, 10)
    for key in await keys_of(redis, session_id):
        assert await redis.ttl(key) > 0


async def test_finished_session_takes_no_more_tokens(store: SessionStore, session_id: str) -> None:
    await create(store, session_id)
    await store.append(session_id, epoch=1, first_index=0, token_ids=[10])
    await store.finish(session_id, epoch=1)
    await store.append(session_id, epoch=1, first_index=0, token_ids=[10])
    with pytest.raises(StoreConflict, match="finished"):
        await store.append(session_id, epoch=1, first_index=1, token_ids=[11])


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
    session_id: str,
    first_index: int,
    token_ids: list[int],
    committed: tuple[int, ...],
) -> None:
    await create(store, session_id)
    await store.append(session_id, epoch=1, first_index=0, token_ids=[10, 11])
    for _ in range(2):
        await store.append(session_id, epoch=1, first_index=first_index, token_ids=token_ids)
    assert await store.read_prefix(session_id, 100) == (*PROMPT, *committed)


@pytest.mark.parametrize(
    ("first_index", "token_ids"), [(3, [12]), (1, [99]), (1, [99, 12]), (0, [10, 99])]
)
async def test_append_that_does_not_fit_changes_nothing(
    store: SessionStore, session_id: str, first_index: int, token_ids: list[int]
) -> None:
    await create(store, session_id)
    await store.append(session_id, epoch=1, first_index=0, token_ids=[10, 11])
    with pytest.raises(StoreConflict):
        await store.append(session_id, epoch=1, first_index=first_index, token_ids=token_ids)
    assert await store.read_prefix(session_id, 100) == (*PROMPT, 10, 11)


async def test_create_may_be_repeated_but_overwrites_nothing(
    store: SessionStore, session_id: str
) -> None:
    await create(store, session_id)
    await create(store, session_id)
    with pytest.raises(StoreConflict):
        await store.create(session_id, owner="b", request=REQUEST, prompt=PROMPT)
    await store.append(session_id, epoch=1, first_index=0, token_ids=[10])
    with pytest.raises(StoreConflict):
        await create(store, session_id)
    assert await store.read_prefix(session_id, 100) == (*PROMPT, 10)


async def test_unknown_session_is_not_found(store: SessionStore, session_id: str) -> None:
    for call in (
        store.append(session_id, epoch=1, first_index=0, token_ids=[10]),
        store.renew(session_id, epoch=1),
        store.take(session_id, owner="a", epoch=None),
        store.finish(session_id, epoch=1),
        store.read_prefix(session_id, 1),
    ):
        with pytest.raises(SessionNotFound):
            await call


async def test_session_whose_tokens_redis_evicted_is_not_found(
    store: SessionStore, redis: Redis, session_id: str
) -> None:
    await create(store, session_id)
    await redis.delete(f"specmesh:{{{session_id}}}:tokens")
    with pytest.raises(SessionNotFound):
        await store.take(session_id, owner="b", epoch=1)


async def test_prefix_is_cut_to_length(store: SessionStore, session_id: str) -> None:
    await create(store, session_id)
    await store.append(session_id, epoch=1, first_index=0, token_ids=[10, 11])
    assert await store.read_prefix(session_id, 1) == (7,)
    assert await store.read_prefix(session_id, 4) == (*PROMPT, 10)


async def test_nonsense_from_the_caller_is_a_value_error(
    store: SessionStore, session_id: str
) -> None:
    with pytest.raises(ValueError, match="prompt"):
        await store.create(session_id, owner="a", request=REQUEST, prompt=[])
    with pytest.raises(ValueError, match="first_index"):
        await store.append(session_id, epoch=1, first_index=-1, token_ids=[10])
    with pytest.raises(ValueError, match="length"):
        await store.read_prefix(session_id, 0)


async def test_successor_learns_which_tokens_the_target_did_not_check(store, session_id):
    await store.create(session_id, owner="a", request=b"", prompt=PROMPT)
    await store.append(
        session_id, epoch=1, first_index=0, token_ids=[2**31 - 1, 5, 6], unchecked=[0, 2]
    )
    await store.append(session_id, epoch=1, first_index=2, token_ids=[6, 7], unchecked=[0])
    record = await store.take(session_id, owner="b", epoch=1)
    assert record.token_ids == (*PROMPT, 2**31 - 1, 5, 6, 7)
    assert record.unchecked == {0, 2}
    assert await store.read_prefix(session_id, 4) == (*PROMPT, 2**31 - 1)
