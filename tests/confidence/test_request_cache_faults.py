"""The request cache while Redis dies, hangs and comes back: nobody waits for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis
from tests.confidence.conftest import until

from specmesh.confidence import request_cache, request_store

if TYPE_CHECKING:
    from tests.confidence.conftest import MakeReplica
    from tests.serving.conftest import RedisServer

WINDOW_S = 0.02
AT_ONCE_S = 1.0
"""Far from a window that no test sees the end of, and room for a busy machine."""


@pytest.fixture
def server(start_redis: Callable[[], RedisServer], monkeypatch: pytest.MonkeyPatch) -> RedisServer:
    monkeypatch.setattr(request_cache, "RETRY_S", 0.05)
    return start_redis()


async def test_requests_that_wait_when_redis_dies_go_together(
    replica: MakeReplica, server: RedisServer
):
    one = await replica(server.url, window_s=0.5)
    one.cache.see("busy")
    waiting = [one.ask("a"), one.ask("b")]
    await asyncio.sleep(0.02)
    began = time.monotonic()
    server.kill()
    assert [each.batch_size for each in await asyncio.gather(*waiting)] == [2, 2]
    assert time.monotonic() - began < 0.5 + AT_ONCE_S
    assert (await one.ask("a")).batch_size == 1  # its window passed, for "b" is at work


async def test_replicas_without_redis_wait_each_for_their_own(
    replica: MakeReplica, server: RedisServer
):
    one, other = await replica(server.url), await replica(server.url)
    server.kill()
    one.cache.see("b")
    first = one.ask("a")
    assert (await other.ask("c")).batch_size == 1
    assert {each.batch_size for each in await asyncio.gather(first, one.ask("b"))} == {2}


async def test_replicas_find_each_other_when_redis_comes_back(
    replica: MakeReplica, server: RedisServer
):
    one, other = await replica(server.url), await replica(server.url)
    server.kill()
    await until(lambda: not (one.shared or other.shared))
    assert (await one.ask("a")).batch_size == 1
    server.start()
    await until(lambda: one.shared and other.shared)
    await other.meet("b")
    first = one.ask("a")
    await asyncio.sleep(0.02)
    assert {each.batch_size for each in await asyncio.gather(first, other.ask("b"))} == {2}


async def test_redis_that_is_not_there_holds_up_no_start(
    replica: MakeReplica, server: RedisServer, caplog: pytest.LogCaptureFixture
):
    server.kill()
    with caplog.at_level(logging.INFO):
        one = await replica(server.url)
        await asyncio.sleep(0.3)  # some attempts
        assert (await one.ask("a")).batch_size == 1
        server.start()
        await until(lambda: one.shared)
    said = [record.message for record in caplog.records if "specmesh" in record.name]
    assert said == [
        "no Redis: requests wait for those of this process alone",
        "requests wait in Redis, for those of all replicas",
    ]


async def test_redis_that_hangs_costs_a_request_a_moment(replica: MakeReplica, server: RedisServer):
    one = await replica(server.url, window_s=WINDOW_S, timeout_s=0.2)
    one.cache.see("busy")
    server.pause()
    waiting = [one.ask("a"), one.ask("b")]
    released = await asyncio.gather(*waiting)
    assert {each.batch_size for each in released} == {2}
    bound_s = WINDOW_S + request_cache.LATE_S
    assert all(WINDOW_S <= each.waited_ms / 1e3 < bound_s + 0.1 for each in released)
    await until(lambda: not one.shared)
    one.cache.see("busy")
    assert (await one.ask("a")).waited_ms / 1e3 < WINDOW_S + 0.1
    server.resume()
    await until(lambda: one.shared)
    assert (await one.ask("a")).batch_size == 1


async def test_a_flood_into_a_hanging_redis_is_released_in_full_batches(
    replica: MakeReplica, server: RedisServer
):
    one = await replica(server.url, window_s=WINDOW_S, timeout_s=0.2, max_batch=32)
    server.pause()
    released = await asyncio.gather(*(one.ask(f"s{number}", -number) for number in range(64)))
    assert {each.batch_size for each in released} == {32}
    assert one.order == [f"s{number}" for number in reversed(range(64))]
    server.resume()


async def test_what_a_hanging_redis_was_sent_is_counted_by_nobody_later(
    replica: MakeReplica, server: RedisServer
):
    one = await replica(server.url, window_s=WINDOW_S, timeout_s=0.2)
    server.pause()
    await asyncio.gather(one.ask("a"), one.ask("b"))
    await until(lambda: not one.shared)
    server.resume()
    other = await replica(server.url, max_batch=2)
    other.cache.see("busy")
    first = other.ask("c")
    await asyncio.sleep(request_store.GRACE_S)
    assert not first.done()
    assert {each.batch_size for each in await asyncio.gather(first, other.ask("d"))} == {2}


@pytest.mark.parametrize("kind", ["pubsub", "normal"])
async def test_a_connection_that_breaks_is_made_anew(
    replica: MakeReplica, server: RedisServer, kind: str
):
    one = await replica(server.url, window_s=WINDOW_S)
    assert (await one.ask("a")).batch_size == 1
    one.cache.see("busy")
    waiting = one.ask("a")
    async with Redis.from_url(server.url) as redis:
        await redis.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    assert (await waiting).batch_size == 1
    await until(lambda: one.shared)
    assert (await one.ask("a")).batch_size == 1


async def test_scripts_that_redis_forgot_are_loaded_again(
    replica: MakeReplica, server: RedisServer
):
    one = await replica(server.url)
    await one.ask("a")
    async with Redis.from_url(server.url) as redis:
        await redis.script_flush()
    assert (await one.ask("a")).batch_size == 1
    assert one.shared


async def test_entries_without_their_order_and_the_reverse_harm_nobody(
    replica: MakeReplica, server: RedisServer
):
    """Short of memory, Redis may evict any one key."""
    one = await replica(server.url)
    async with Redis.from_url(server.url) as redis:
        for key in ("waiting", "entries", "sessions"):
            one.cache.see("busy")
            lost = one.ask("a")
            await asyncio.sleep(0.02)
            await redis.delete(f"specmesh:{{request-cache}}:{key}")
            lost.cancel()
            await asyncio.wait([lost])
            await asyncio.sleep(0.02)
            assert not await redis.exists("specmesh:{request-cache}:entries")
    assert one.shared
