"""Requests that wait together."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.confidence.conftest import MakeReplica


async def test_a_lone_session_never_waits(replica: MakeReplica):
    one = replica()
    released = await one.ask("a")
    assert released.batch_size == 1
    assert (await one.ask("a")).batch_size == 1


async def test_requests_go_together_once_all_sessions_at_work_wait(replica: MakeReplica):
    one = replica()
    one.cache.see("c")
    first, second = one.ask("a"), one.ask("b")
    await asyncio.sleep(0.02)
    assert not first.done()
    assert not second.done()
    releases = await asyncio.gather(first, second, one.ask("c"))
    assert [released.batch_size for released in releases] == [3, 3, 3]
    assert releases[0].waited_ms >= 20


async def test_requests_go_when_the_oldest_is_due(replica: MakeReplica):
    one = replica(window_s=0.3)
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


async def test_a_full_batch_goes_at_once_least_sure_first(replica: MakeReplica):
    one = replica(max_batch=3)
    one.cache.see("busy")
    asked = [one.ask("a", -1), one.ask("b", float("-inf"))]
    await asyncio.sleep(0.02)
    asked.append(one.ask("c", -0.5))
    await asyncio.gather(*asked)
    assert one.order == ["b", "a", "c"]


async def test_a_withdrawn_request_is_not_counted(replica: MakeReplica):
    one = replica()
    one.cache.see("c")
    gone = one.ask("a")
    await asyncio.sleep(0.02)
    gone.cancel()
    await asyncio.wait([gone])
    stays = one.ask("b")
    again, last = one.ask("a"), one.ask("c")
    assert [each.batch_size for each in await asyncio.gather(stays, again, last)] == [3, 3, 3]


async def test_stopping_releases_whoever_waits(replica: MakeReplica):
    one = replica()
    one.cache.see("busy")
    waiting = one.ask("a")
    await asyncio.sleep(0.02)
    one.cache.stop()
    assert (await waiting).batch_size == 1


async def test_many_sessions_are_all_released_in_batches(replica: MakeReplica):
    one = replica(window_s=0.01, max_batch=8)

    async def session(number: int) -> list[int]:
        sizes = []
        for _ in range(10):
            sizes.append((await one.ask(f"s{number}", -number)).batch_size)
            await asyncio.sleep(0.001 * (number % 3))
        return sizes

    sizes = [size for each in await asyncio.gather(*map(session, range(16))) for size in each]
    assert len(sizes) == 160
    assert max(sizes) <= 8
    # Every batch of n is told to n requests.
    assert all(sizes.count(size) % size == 0 for size in set(sizes))
