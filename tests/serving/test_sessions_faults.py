"""The session store while Redis dies, hangs and comes back."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis
from tests.serving.acl import as_documented

from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import (
    CANCELLED,
    Claim,
    Generated,
    SessionStart,
    StaleEpoch,
    StoreConflict,
    StoreUnavailable,
    Writer,
)

if TYPE_CHECKING:
    from tests.serving.conftest import RedisServer

TIMEOUT_S = 0.2
FAIL_FAST_S = 0.5
CLAIM = Claim("s", b"secret", owner="")
SESSION = SessionStart(CLAIM, model="", request=b"", prompt=(1, 2))
FIRST, SECOND, THIRD = (Writer(epoch, f"writer {epoch}") for epoch in (1, 2, 3))
NOTHING = Generated()


@pytest.fixture
def server(start_redis: Callable[[], RedisServer]) -> RedisServer:
    return start_redis()


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[SessionStore]:
    store = SessionStore.from_url(as_documented(server.url), timeout_s=TIMEOUT_S)
    await store.put(SESSION, FIRST, NOTHING)
    yield store
    await store.aclose()


@asynccontextmanager
async def expect_unavailable() -> AsyncIterator[None]:
    start = time.monotonic()
    with pytest.raises(StoreUnavailable):
        yield
    assert time.monotonic() - start < FAIL_FAST_S


@asynccontextmanager
async def losing_first_answer_to(command: bytes, server: RedisServer) -> AsyncIterator[str]:
    """Give the address of a proxy that hangs up where the first answer is due."""
    lost = False

    async def serve(client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        nonlocal lost
        server_in, server_out = await asyncio.open_connection("127.0.0.1", server.port)
        while request := await client_in.read(65536):
            server_out.write(request)
            answer = await server_in.read(65536)
            if not lost and command in request:
                lost = True
                break
            client_out.write(answer)
        server_out.close()
        client_out.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as proxy:
        host, port = proxy.sockets[0].getsockname()
        yield f"redis://{host}:{port}"


@asynccontextmanager
async def far_away(server: RedisServer) -> AsyncIterator[str]:
    """Give the address of a proxy where connecting takes longer than a command may."""

    async def pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first_s: float
    ) -> None:
        try:
            while data := await reader.read(65536):
                await asyncio.sleep(first_s)
                first_s = 0.0
                writer.write(data)
        finally:
            writer.close()

    async def serve(client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection("127.0.0.1", server.port)
        there, back = pump(client_in, server_out, 0.0), pump(server_in, client_out, 2 * TIMEOUT_S)
        await asyncio.gather(there, back)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as proxy:
        host, port = proxy.sockets[0].getsockname()
        yield f"redis://{host}:{port}"


async def answers(store: SessionStore) -> bool:
    try:
        await store.ping()
    except StoreUnavailable:
        return False
    return True


async def test_dead_redis_is_unavailable_at_once(store: SessionStore, server: RedisServer) -> None:
    server.kill()
    for _ in range(3):
        async with expect_unavailable():
            await store.append("s", FIRST, first_index=0, token_ids=[3])
        async with expect_unavailable():
            await store.read_prefix("s", 1)
        async with expect_unavailable():
            await store.ping()


async def test_restarted_redis_serves_the_very_next_call(
    store: SessionStore, server: RedisServer
) -> None:
    await store.append("s", FIRST, first_index=0, token_ids=[3])
    server.kill()
    async with expect_unavailable():
        await store.append("s", FIRST, first_index=1, token_ids=[4])
    server.start()
    # Its script cache is empty now, which the store must notice by itself.
    await store.append("s", FIRST, first_index=1, token_ids=[4])
    assert await store.read_prefix("s", 10) == (1, 2, 3, 4)


async def test_restart_that_nobody_noticed_fails_no_call(
    store: SessionStore, server: RedisServer
) -> None:
    await asyncio.gather(*(store.ping() for _ in range(10)))  # ten connections in the pool
    await asyncio.to_thread(server.kill)  # while the event loop goes on, as it does in life
    await asyncio.to_thread(server.start)
    assert await asyncio.gather(*(store.read_prefix("s", 1) for _ in range(10))) == [(1,)] * 10


async def test_flushed_scripts_are_loaded_again(store: SessionStore, server: RedisServer) -> None:
    async with Redis.from_url(server.url) as redis:
        await redis.script_flush()
    await store.append("s", FIRST, first_index=0, token_ids=[3])
    assert await store.read_prefix("s", 10) == (1, 2, 3)


async def test_hanging_redis_is_unavailable_within_the_deadline(
    store: SessionStore, server: RedisServer
) -> None:
    server.pause()
    async with expect_unavailable():  # on a connection from before
        await store.append("s", FIRST, first_index=0, token_ids=[3])
    async with expect_unavailable():  # on a new one, which the kernel still accepts
        await store.append("s", FIRST, first_index=0, token_ids=[3])


async def test_redis_that_is_far_away_is_reached_although_a_command_may_not_take_so_long(
    server: RedisServer,
) -> None:
    async with far_away(server) as url:
        store = SessionStore.from_url(as_documented(url), timeout_s=TIMEOUT_S)
        async with expect_unavailable():
            await store.ping()
        async with asyncio.timeout(10):
            while not await answers(store):
                pass
        await store.aclose()


async def test_many_calls_to_a_hanging_redis_fail_together(
    store: SessionStore, server: RedisServer
) -> None:
    server.pause()
    start = time.monotonic()
    outcomes = await asyncio.gather(*(store.ping() for _ in range(200)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
    assert time.monotonic() - start < 5  # and not one deadline of 0.2 s after the other
    server.resume()
    async with asyncio.timeout(10):  # it has to come to what it was sent while it hung
        while not all(await asyncio.gather(*(answers(store) for _ in range(20)))):
            pass


async def test_append_that_timed_out_but_ran_may_be_repeated(
    store: SessionStore, server: RedisServer
) -> None:
    server.pause()
    async with expect_unavailable():
        await store.append("s", FIRST, first_index=0, token_ids=[3, 4])
    server.resume()
    async with asyncio.timeout(10):
        while await store.read_prefix("s", 10) == (1, 2):
            pass  # Redis has not come to what it was sent while it hung
    await store.append("s", FIRST, first_index=0, token_ids=[3, 4])
    assert await store.read_prefix("s", 10) == (1, 2, 3, 4)


async def test_take_that_timed_out_and_runs_late_takes_nothing_from_a_later_one(
    store: SessionStore, server: RedisServer
) -> None:
    slow = SessionStore.from_url(as_documented(server.url), timeout_s=TIMEOUT_S)
    await slow.ping()
    server.pause()
    async with expect_unavailable():
        await slow.take(CLAIM, 2, "writer 2", NOTHING)
    patient = SessionStore.from_url(as_documented(server.url), timeout_s=10)
    third = asyncio.create_task(patient.take(CLAIM, 3, "writer 3", NOTHING))
    server.resume()
    assert await third == (THIRD, NOTHING)
    await patient.append("s", THIRD, first_index=0, token_ids=[3])
    for other in (FIRST, SECOND):
        with pytest.raises(StaleEpoch):
            await patient.append("s", other, first_index=0, token_ids=[3])
    await slow.aclose()
    await patient.aclose()


async def test_take_whose_answer_was_lost_is_not_run_again_and_harms_no_later_one(
    store: SessionStore, server: RedisServer
) -> None:
    async with losing_first_answer_to(b"EVALSHA", server) as url:
        lossy = SessionStore.from_url(as_documented(url), timeout_s=TIMEOUT_S)
        async with expect_unavailable():
            await lossy.take(CLAIM, 2, "writer 2", NOTHING)
        await lossy.aclose()
    with pytest.raises(StaleEpoch):  # it ran
        await store.append("s", FIRST, first_index=0, token_ids=[3])
    assert await store.take(CLAIM, 3, "writer 3", NOTHING) == (THIRD, NOTHING)


async def test_cancelled_calls_harm_no_later_call(store: SessionStore) -> None:
    await store.put(
        replace(SESSION, claim=replace(CLAIM, session_id="other"), prompt=(9,)), FIRST, NOTHING
    )
    for num_steps in range(100):  # cancelled everywhere between the first step and the last
        call = asyncio.create_task(store.read_prefix("s", 1))
        for _ in range(num_steps % 25):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert await store.read_prefix("other", 1) == (9,)


async def test_redis_without_memory_is_unavailable_and_writes_nothing(
    store: SessionStore, server: RedisServer
) -> None:
    async with Redis.from_url(server.url) as redis:
        await redis.config_set("maxmemory", 1)
        async with expect_unavailable():
            await store.append("s", FIRST, first_index=0, token_ids=[3])
        await redis.config_set("maxmemory", 0)
    assert await store.read_prefix("s", 10) == (1, 2)
    await store.append("s", FIRST, first_index=0, token_ids=[3])


async def test_redis_without_memory_begins_no_session_and_ends_those_it_has(
    store: SessionStore, server: RedisServer
) -> None:
    cancelled, another = (replace(SESSION, claim=replace(CLAIM, session_id=n)) for n in "ca")
    await store.put(cancelled, FIRST, NOTHING)
    async with Redis.from_url(server.url) as redis:
        keys = await redis.keys()
        await redis.config_set("maxmemory", 1)
        for write in (store.begin, store.put):
            async with expect_unavailable():
                await write(another, FIRST, NOTHING)
        async with expect_unavailable():  # whose session is at an earlier epoch
            await store.put(SESSION, SECOND, Generated((3,)))
        assert sorted(await redis.keys()) == sorted(keys)
    await store.finish("s", FIRST, 0, "END_OF_TEXT")
    await store.cancel(cancelled.claim)
    ends = [await store.read(each.claim) for each in (SESSION, cancelled)]
    assert [(each.epoch, each.ended) for each in ends] == [(1, "END_OF_TEXT"), (1, CANCELLED)]
    assert all(each.expires_in_s <= 60 for each in ends)


async def test_owner_restores_commits_that_redis_lost(
    store: SessionStore, server: RedisServer
) -> None:
    await store.append("s", FIRST, first_index=0, token_ids=[3, 4])
    async with Redis.from_url(server.url) as redis:  # as after a failover to a lagging replica
        await redis.set("specmesh:{s}:tokens", struct.pack("<3I", 1, 2, 3))
    with pytest.raises(StoreConflict, match="missing"):
        await store.append("s", FIRST, first_index=2, token_ids=[5])
    await store.put(SESSION, FIRST, Generated((3, 4, 5)))
    assert await store.read_prefix("s", 10) == (1, 2, 3, 4, 5)
