"""Calls of the store's script that come at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from redis.asyncio.client import Pipeline

from specmesh.serving.store import script_pipeline
from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import (
    Claim,
    Generated,
    SessionNotFound,
    SessionStart,
    StoreUnavailable,
    Writer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.serving.conftest import RedisServer

WRITER = Writer(1, "writer")
NUM_SESSIONS = 16


@pytest.fixture
def server(start_redis: Callable[[], RedisServer]) -> RedisServer:
    return start_redis()


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[SessionStore]:
    store = SessionStore.from_url(server.url, timeout_s=1.0)
    await asyncio.gather(*(store.put(session(n), WRITER, Generated()) for n in range(NUM_SESSIONS)))
    yield store
    await store.aclose()


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tells how many commands each round trip has."""
    sizes: list[int] = []
    execute = Pipeline.execute

    async def counted(self: Pipeline, raise_on_error: bool = True) -> list[object]:
        sizes.append(len(self))
        return await execute(self, raise_on_error)

    monkeypatch.setattr(Pipeline, "execute", counted)
    return sizes


def session(number: int) -> SessionStart:
    claim = Claim(f"s{number}", b"secret", owner="")
    return SessionStart(claim, model="", request=b"", prompt=(1, 2))


def append(store: SessionStore, number: int, first_index: int = 0) -> asyncio.Task[None]:
    growing = store.append(f"s{number}", WRITER, first_index=first_index, token_ids=(3,))
    return asyncio.create_task(growing)


async def tokens(store: SessionStore, number: int) -> tuple[int, ...]:
    return await store.read_prefix(f"s{number}", 8)


async def test_calls_of_one_moment_share_a_round_trip(store: SessionStore, trips: list[int]):
    await asyncio.gather(*(append(store, n) for n in range(NUM_SESSIONS)))
    assert trips == [NUM_SESSIONS]
    assert {await tokens(store, n) for n in range(NUM_SESSIONS)} == {(1, 2, 3)}


async def test_a_call_that_comes_during_a_round_trip_goes_by_the_next(
    store: SessionStore, trips: list[int]
):
    first = append(store, 0)
    for _ in range(3):  # it is sent
        await asyncio.sleep(0)
    await asyncio.gather(first, *(append(store, n) for n in range(1, NUM_SESSIONS)))
    assert trips == [1, NUM_SESSIONS - 1]


async def test_calls_of_long_sessions_share_no_more_than_a_timeout_can_carry(
    store: SessionStore, trips: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(script_pipeline, "MOST_BYTES", 10_000)
    long = (3,) * 1_000  # of four bytes
    puts = (store.put(session(n), WRITER, Generated(long)) for n in range(5))
    whole = store.put(session(5), WRITER, Generated(long * 3))  # larger than any trip may be
    await asyncio.gather(append(store, 6), *puts, whole)
    assert trips == [3, 2, 1, 1]
    assert [len((await store.read(session(n).claim)).generated.token_ids) for n in (4, 5)] == [
        1_000,
        3_000,
    ]


async def test_few_calls_whose_replies_may_be_long_share_a_round_trip(
    store: SessionStore, trips: list[int]
):
    read = await asyncio.gather(*(store.read(session(n).claim) for n in range(NUM_SESSIONS)))
    assert trips == [7, 7, 2]
    assert [each.session for each in read] == [session(n) for n in range(NUM_SESSIONS)]


async def test_any_number_of_short_calls_share_a_round_trip(store: SessionStore, trips: list[int]):
    await asyncio.gather(*(append(store, n % NUM_SESSIONS) for n in range(300)))
    assert trips == [300]


async def test_a_call_has_the_whole_timeout_once_it_is_sent(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
):
    """A slow server would store nothing for many answers if the wait for others' round trip
    counted."""
    execute = Pipeline.execute

    async def slow(self: Pipeline, raise_on_error: bool = True) -> list[object]:
        await asyncio.sleep(0.6)
        return await execute(self, raise_on_error)

    monkeypatch.setattr(Pipeline, "execute", slow)
    first = append(store, 0)
    for _ in range(3):  # it is sent
        await asyncio.sleep(0)
    await asyncio.gather(first, append(store, 1), append(store, 2))
    monkeypatch.undo()
    assert {await tokens(store, n) for n in range(3)} == {(1, 2, 3)}


async def test_a_call_to_a_server_that_hangs_waits_for_two_timeouts_at_most(server: RedisServer):
    store = SessionStore.from_url(server.url, timeout_s=0.3)
    await store.put(session(0), WRITER, Generated())
    server.pause()
    loop = asyncio.get_running_loop()
    first, began = append(store, 0), loop.time()
    await asyncio.sleep(0.01)
    waiting = append(store, 0)
    failed = await asyncio.gather(first, waiting, return_exceptions=True)
    took = loop.time() - began
    await store.aclose()
    assert {type(each) for each in failed} == {StoreUnavailable}
    assert 0.6 <= took < 5


async def test_round_trips_that_wait_behind_one_that_fails_fail_with_it(
    server: RedisServer, trips: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(script_pipeline, "MOST_BYTES", 1)
    store = SessionStore.from_url(server.url, timeout_s=0.3)
    await store.put(session(0), WRITER, Generated())
    trips.clear()
    server.pause()
    calls = [append(store, 0) for _ in range(NUM_SESSIONS)]
    failed = await asyncio.gather(*calls, return_exceptions=True)
    await store.aclose()
    assert {type(each) for each in failed} == {StoreUnavailable}
    assert trips == [1]


async def test_a_connection_that_breaks_costs_only_the_calls_on_it(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(script_pipeline, "MOST_BYTES", 1)
    execute, num_broken = Pipeline.execute, 0

    async def broken_once(self: Pipeline, raise_on_error: bool = True) -> list[object]:
        nonlocal num_broken
        num_broken += 1
        if num_broken == 1:
            raise ConnectionResetError
        return await execute(self, raise_on_error)

    monkeypatch.setattr(Pipeline, "execute", broken_once)
    calls = [append(store, n) for n in range(4)]
    failed = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in failed] == [StoreUnavailable, *[type(None)] * 3]


async def test_what_is_refused_is_refused_alone(store: SessionStore):
    unknown = append(store, NUM_SESSIONS)
    await asyncio.gather(append(store, 0), append(store, 1))
    with pytest.raises(SessionNotFound):
        await unknown


async def test_who_has_left_keeps_nobody_from_its_reply(store: SessionStore):
    left, stays = append(store, 0), append(store, 1)
    await asyncio.sleep(0)
    left.cancel()
    await stays
    assert await tokens(store, 1) == (1, 2, 3)


async def test_a_server_that_has_forgotten_the_script_is_given_it_again(
    store: SessionStore,
    server: RedisServer,
    trips: list[int],
    monkeypatch: pytest.MonkeyPatch,
):
    other = SessionStore.from_url(server.url)
    await other._client.script_flush()
    await other.aclose()
    loads = [0]
    load = store._client.script_load

    async def counted(script: str) -> object:
        loads[0] += 1
        return await load(script)

    monkeypatch.setattr(store._client, "script_load", counted)
    await asyncio.gather(append(store, 0), append(store, 1))
    assert (await tokens(store, 0), await tokens(store, 1)) == ((1, 2, 3), (1, 2, 3))
    assert trips == [2, 2]
    assert loads == [1]  # for both


async def test_a_broken_round_trip_fails_each_of_its_calls(
    store: SessionStore, server: RedisServer
):
    server.kill()
    calls = [append(store, n) for n in range(NUM_SESSIONS)]
    failed = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in failed} == {StoreUnavailable}
    assert len({id(each) for each in failed}) == NUM_SESSIONS


async def test_no_call_outlives_the_store(store: SessionStore, server: RedisServer):
    server.pause()
    call = append(store, 0)
    await asyncio.sleep(0.01)
    waiting = append(store, 1)  # for the next round trip
    await asyncio.sleep(0.01)
    await store.aclose()
    async with asyncio.timeout(10):
        for each in (call, waiting):
            with pytest.raises(StoreUnavailable):
                await each
