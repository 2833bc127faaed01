"""Threads for long work, of which no identity can take more than its share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from specmesh.orchestrator.admission.fair_pool import FairPool
from specmesh.serving.caller import identified
from specmesh.serving.errors import ResourceExhaustedStatus

AT_WORK, WAITING = 2, 4


class Works:
    """Work that ends when it is let go, in a pool."""

    def __init__(self) -> None:
        self.pool = FairPool("test", AT_WORK, WAITING, "things wait")
        self.begun: list[str] = []
        self._permits = threading.Semaphore(0)
        self._started = threading.Semaphore(0)

    def ask(self, identity: str, name: str = "") -> asyncio.Task[str]:
        """Has it done for ``identity``; its place is taken when this returns."""
        with identified(identity):
            return asyncio.create_task(self._ask(name or identity))

    async def _ask(self, name: str) -> str:
        return await self.pool.run(self._work, name)

    def _work(self, name: str) -> str:
        self.begun.append(name)
        self._started.release()
        assert self._permits.acquire(timeout=30)
        return name

    async def started(self, num: int = 1) -> None:
        """Wait for the next ``num`` to begin."""
        for _ in range(num):
            assert await asyncio.to_thread(self._started.acquire, timeout=30)

    def let_go(self, num: int = 1) -> None:
        """``num`` more may end."""
        self._permits.release(num)


@pytest.fixture
async def works() -> AsyncIterator[Works]:
    works = Works()
    yield works
    works.let_go(100)
    await works.pool.close()


async def filled(works: Works, identity: str = "alice") -> list[asyncio.Task[str]]:
    """All places taken by ``identity``."""
    tasks = [works.ask(identity, f"{identity} {n}") for n in range(AT_WORK + WAITING)]
    await works.started(AT_WORK)
    return tasks


@contextmanager
def overloaded() -> Iterator[None]:
    with pytest.raises(ResourceExhaustedStatus) as refused:
        yield
    assert refused.value.reason == "OVERLOADED"
    assert refused.value.retry_after_s


async def test_alone_an_identity_may_have_every_place(works: Works):
    tasks = await filled(works)
    with overloaded():
        await works.ask("alice")
    works.let_go(len(tasks))
    assert len({await task for task in tasks}) == AT_WORK + WAITING


async def test_another_finds_a_place_and_is_next(works: Works):
    tasks = await filled(works)
    bob = works.ask("bob")
    with overloaded():  # the place that bob has is that of the last of who had most
        await tasks[-1]
    works.let_go()
    await works.started()
    assert works.begun[-1] == "bob"
    works.let_go(100)
    assert await bob == "bob"
    assert len({await task for task in tasks[:-1]}) == len(tasks) - 1


async def test_identities_take_turns(works: Works):
    at_work = [works.ask("alice", "first") for _ in range(AT_WORK)]
    await works.started(AT_WORK)
    waiting = [works.ask(name) for name in ("alice", "alice", "bob", "bob")]
    await asyncio.sleep(0)
    for _ in waiting:
        works.let_go()
        await works.started()
    assert works.begun[AT_WORK:] == ["bob", "alice", "bob", "alice"]
    works.let_go(AT_WORK)
    await asyncio.gather(*at_work, *waiting)


async def test_where_all_have_the_same_share_one_more_is_refused(works: Works):
    at_work = [works.ask("alice", "first") for _ in range(AT_WORK)]
    await works.started(AT_WORK)
    waiting = [works.ask(f"identity {n}") for n in range(WAITING)]
    await asyncio.sleep(0)
    for name in ("one more", "identity 0"):
        with overloaded():
            await works.ask(name)
    works.let_go(AT_WORK + WAITING)
    await asyncio.gather(*at_work, *waiting)


async def test_who_goes_away_while_it_waits_leaves_its_place(works: Works):
    tasks = await filled(works)
    tasks.pop().cancel()
    await asyncio.sleep(0)
    later = works.ask("alice", "later")
    works.let_go(100)
    assert await later == "later"
    await asyncio.gather(*tasks)


async def test_who_has_just_gone_away_leaves_its_place_to_another(works: Works):
    tasks = await filled(works)
    tasks[-1].cancel()
    bob = works.ask("bob")
    works.let_go(100)
    assert await bob == "bob"
    assert len({await task for task in tasks[:-1]}) == len(tasks) - 1


async def test_who_goes_away_when_its_turn_comes_hands_it_on(works: Works):
    tasks = await filled(works)
    works.let_go()
    await tasks[0]
    # Its turn has come by now, and the task has not run since.
    tasks[AT_WORK].cancel()
    works.let_go(100)
    others = [task for n, task in enumerate(tasks) if n not in {0, AT_WORK}]
    await asyncio.gather(*others)
    assert await works.ask("bob") == "bob"


async def test_work_whose_client_has_gone_counts_until_its_thread_is_done(works: Works):
    tasks = await filled(works)
    tasks[0].cancel()
    await asyncio.wait({tasks[0]})
    with overloaded():
        await works.ask("alice")
    assert len(works.begun) == AT_WORK
    works.let_go(100)
    await asyncio.gather(*tasks[1:])


async def test_what_fails_frees_its_thread(works: Works):
    def fails() -> None:
        raise ValueError("no")

    for _ in range(2 * AT_WORK):
        with pytest.raises(ValueError, match="no"):
            await works.pool.run(fails)


async def test_what_waits_when_it_closes_is_dropped(works: Works):
    tasks = await filled(works)
    closing = asyncio.create_task(works.pool.close())
    await asyncio.wait(tasks[AT_WORK:])
    assert all(task.cancelled() for task in tasks[AT_WORK:])
    works.let_go(AT_WORK)
    await closing
    assert len({await task for task in tasks[:AT_WORK]}) == AT_WORK
    assert len(works.begun) == AT_WORK
