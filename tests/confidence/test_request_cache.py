"""Requests that wait together, in one process and across replicas on a real Redis."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.confidence.conftest import LONG_S, PATIENCE_S

from specmesh.confidence import request_cache, request_store
from specmesh.confidence.request_store import GRACE_S

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from tests.confidence.conftest import MakeReplica
    from tests.serving.conftest import RedisServer

ENTRIES = "specmesh:{request-cache}:entries"
START_S = 90
"""Fails a test whose process does not start; on a busy machine that takes its time."""


@pytest.fixture(autouse=True)
def _redis_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However late it is asked and answers on a busy machine: lateness is tested elsewhere."""
    monkeypatch.setattr(request_cache, "LATE_S", PATIENCE_S)
    monkeypatch.setattr(request_store, "GRACE_S", PATIENCE_S)


@pytest.fixture(params=["redis", "memory"])
def url(request: pytest.FixtureRequest, redis: Redis, redis_server: RedisServer) -> str | None:
    """Where a lone replica's requests wait: the same must hold for both."""
    return redis_server.url if request.param == "redis" else None


async def has_entries(redis: Redis, count: int, patience_s: float = PATIENCE_S) -> None:
    """Wait until so many requests wait in Redis."""
    async with asyncio.timeout(patience_s):
        while await redis.hlen(ENTRIES) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def test_a_lone_session_never_waits(replica: MakeReplica, url: str | None):
    one = await replica(url)
    released = await one.ask("a")
    assert released.batch_size == 1
    assert (await one.ask("a")).batch_size == 1


async def test_requests_go_together_once_all_sessions_at_work_wait(
    replica: MakeReplica, url: str | None
):
    one = await replica(url)
    one.cache.see("c")
    first, second = one.ask("a"), one.ask("b")
    await asyncio.sleep(0.02)
    assert not first.done()
    assert not second.done()
    releases = await asyncio.gather(first, second, one.ask("c"))
    assert [released.batch_size for released in releases] == [3, 3, 3]
    assert releases[0].waited_ms >= 20


async def test_requests_go_when_the_oldest_is_due(replica: MakeReplica, url: str | None):
    one = await replica(url, window_s=0.3)
    one.cache.see("busy")
    began = time.monotonic()
    first = one.ask("a")
    await asyncio.sleep(0.02)
    second = one.ask("b")
    released = await asyncio.gather(first, second)
    assert 0.3 <= time.monotonic() - began < 5
    assert [each.batch_size for each in released] == [2, 2]
    assert released[0].waited_ms >= 300
    assert released[0].waited_ms - released[1].waited_ms >= 20


async def test_a_full_batch_goes_at_once_least_sure_first(replica: MakeReplica, url: str | None):
    one = await replica(url, max_batch=3)
    one.cache.see("busy")
    asked = [one.ask("a", -1), one.ask("b", float("-inf"))]
    await asyncio.sleep(0.02)
    asked.append(one.ask("c", -0.5))
    await asyncio.gather(*asked)
    assert one.order == ["b", "a", "c"]


async def test_the_least_sure_go_first_when_too_many_come_at_once(
    replica: MakeReplica, redis: Redis, redis_server: RedisServer
):
    one = await replica(redis_server.url, max_batch=2)
    one.cache.see("busy")
    asked = {name: one.ask(name, -ord(name)) for name in "abc"}  # all with one turn
    await asyncio.gather(asked["b"], asked["c"])
    assert one.order == ["c", "b"]
    await has_entries(redis, 1)
    assert not asked["a"].done()


async def test_a_withdrawn_request_is_not_counted(
    replica: MakeReplica, url: str | None, redis: Redis
):
    one = await replica(url)
    one.cache.see("c")
    gone = one.ask("a")
    await asyncio.sleep(0.02)
    gone.cancel()
    await asyncio.wait([gone])
    if url is not None:
        await has_entries(redis, 0)
    stays = one.ask("b")
    again, last = one.ask("a"), one.ask("c")
    assert [each.batch_size for each in await asyncio.gather(stays, again, last)] == [3, 3, 3]


async def test_stopping_releases_whoever_waits(replica: MakeReplica, url: str | None):
    one = await replica(url)
    one.cache.see("busy")
    waiting = one.ask("a")
    await asyncio.sleep(0.02)
    await one.cache.stop()
    assert (await waiting).batch_size == 1


async def test_a_batch_holds_requests_of_several_replicas(
    replica: MakeReplica, redis: Redis, redis_server: RedisServer
):
    one, other = await replica(redis_server.url), await replica(redis_server.url)
    await other.meet("b")
    first = one.ask("a")
    await has_entries(redis, 1)
    releases = await asyncio.gather(first, other.ask("b"))
    assert [released.batch_size for released in releases] == [2, 2]
    assert not await redis.exists(ENTRIES)


async def test_a_batch_is_full_whoever_fills_it(
    replica: MakeReplica, redis: Redis, redis_server: RedisServer
):
    one = await replica(redis_server.url, max_batch=4)
    other = await replica(redis_server.url, max_batch=4)
    await one.meet("busy")
    mine = [one.ask(name) for name in "abc"]
    await has_entries(redis, 3)
    theirs = other.ask("d")
    assert {each.batch_size for each in await asyncio.gather(*mine, theirs)} == {4}


async def test_whoever_is_due_first_releases_all(
    replica: MakeReplica, redis: Redis, redis_server: RedisServer
):
    patient, quick = await replica(redis_server.url), await replica(redis_server.url, window_s=0.02)
    await patient.meet("busy")
    first = patient.ask("a")
    await has_entries(redis, 1)
    releases = await asyncio.gather(first, quick.ask("b"))
    assert [released.batch_size for released in releases] == [2, 2]


async def test_what_waits_can_be_looked_at(
    replica: MakeReplica, redis: Redis, redis_server: RedisServer
):
    one = await replica(redis_server.url)
    one.cache.see("busy")
    one.ask("a", float("-inf"))
    await has_entries(redis, 1)
    ((member, confidence),) = await redis.zrange(
        "specmesh:{request-cache}:waiting", 0, -1, withscores=True
    )
    assert confidence == float("-inf")
    entry = await redis.hget(ENTRIES, member)
    assert b'"prefix_length":16' in entry
    assert b'"session_id":"a"' in entry
    assert b"digest".hex().encode() in entry
    for key in await redis.keys():
        assert 0 < await redis.pttl(key) <= 1000


@pytest.fixture
async def stranger(
    redis: Redis, redis_server: RedisServer, request: pytest.FixtureRequest
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A replica in a process of its own, whose one request waits; its window may be given."""
    window_s = getattr(request, "param", LONG_S)
    program = Path(__file__).with_name("stranger.py")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(program), redis_server.url, str(window_s)),
        stdout=asyncio.subprocess.PIPE,
    )
    await has_entries(redis, 1, START_S)
    yield process
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def test_a_living_stranger_is_counted(
    replica: MakeReplica, redis_server: RedisServer, stranger: asyncio.subprocess.Process
):
    one = await replica(redis_server.url, max_batch=2)
    assert (await one.ask("a")).batch_size == 2
    assert stranger.stdout is not None
    assert await asyncio.wait_for(stranger.stdout.readline(), 20) == b"2\n"


async def test_a_killed_replica_blocks_nobody_and_is_not_counted(
    replica: MakeReplica,
    redis: Redis,
    redis_server: RedisServer,
    stranger: asyncio.subprocess.Process,
):
    stranger.kill()
    await stranger.wait()
    one = await replica(redis_server.url, max_batch=2)
    one.cache.see("busy")
    first = one.ask("a")
    await asyncio.sleep(0.05)
    assert not first.done()
    assert await redis.hlen(ENTRIES) == 1
    assert {each.batch_size for each in await asyncio.gather(first, one.ask("b"))} == {2}


@pytest.mark.parametrize("stranger", [1.0], indirect=True)
async def test_a_replica_that_hangs_is_forgotten_after_its_time(
    replica: MakeReplica,
    redis_server: RedisServer,
    stranger: asyncio.subprocess.Process,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(request_store, "GRACE_S", GRACE_S)
    stranger.send_signal(signal.SIGSTOP)
    await asyncio.sleep(1.0 + GRACE_S)
    one = await replica(redis_server.url, max_batch=2)
    one.cache.see("busy")
    first = one.ask("a")
    await asyncio.sleep(0.05)
    assert not first.done()
    assert {each.batch_size for each in await asyncio.gather(first, one.ask("b"))} == {2}


async def test_many_sessions_on_two_replicas_are_all_released_in_batches(
    replica: MakeReplica, redis: Redis, redis_server: RedisServer
):
    replicas = [await replica(redis_server.url, window_s=0.01, max_batch=8) for _ in range(2)]

    async def session(number: int) -> list[int]:
        sizes = []
        for turn in range(10):
            asked = replicas[(number + turn) % 2].ask(f"s{number}", -number)
            sizes.append((await asked).batch_size)
            await asyncio.sleep(0.001 * (number % 3))
        return sizes

    sizes = [size for each in await asyncio.gather(*map(session, range(16))) for size in each]
    assert len(sizes) == 160
    assert max(sizes) <= 8
    # Every batch of n is told to n requests.
    assert all(sizes.count(size) % size == 0 for size in set(sizes))
    assert not await redis.exists(ENTRIES)
