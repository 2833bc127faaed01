"""Coroutines that run without a task of their own while their caller waits for them."""

from __future__ import annotations

import asyncio

import pytest

from specmesh.serving.eager import EagerWork, begin


class Work:
    """A coroutine of several waits, and how far it has got."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.first: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.second: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        try:
            self.steps.append("begun")
            self.steps.append(await self.first)
            await asyncio.sleep(0)
            self.steps.append(await self.second)
        finally:
            self.steps.append("ended")


async def test_it_runs_to_its_first_wait_at_once_and_to_its_end_while_somebody_waits():
    work = Work()
    begun = EagerWork(work.run())
    assert work.steps == ["begun"]
    waiting = asyncio.create_task(begun.wait())
    for future, said in ((work.first, "one"), (work.second, "two")):
        await asyncio.sleep(0)
        future.set_result(said)
    assert await waiting
    assert work.steps == ["begun", "one", "two", "ended"]


async def test_what_does_not_wait_is_done_at_once():
    async def work() -> None:
        pass

    begun = EagerWork(work())
    assert begun.done
    assert await begun.wait(0)
    assert begin(work()) is None


async def test_after_its_time_the_rest_is_for_a_task():
    work = Work()
    begun = EagerWork(work.run())
    assert not await begun.wait(0.01)
    work.first.set_result("one")
    await asyncio.sleep(0.01)
    assert work.steps == ["begun"]  # nobody runs it
    rest = begun.go_on()
    work.second.set_result("two")
    await rest
    assert work.steps == ["begun", "one", "two", "ended"]


async def test_the_time_is_that_of_all_its_waits():
    async def often() -> None:
        for _ in range(10_000):
            await asyncio.sleep(0.001)

    begun = EagerWork(often())
    assert not await asyncio.wait_for(begun.wait(0.02), 10)
    begun.close()


async def test_a_caller_that_is_cancelled_leaves_it_where_it_is():
    work = Work()
    begun = EagerWork(work.run())
    waiting = asyncio.create_task(begun.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (work.steps, work.first.cancelled()) == (["begun"], False)
    begun.close()
    assert work.steps == ["begun", "ended"]


@pytest.mark.parametrize("is_waited_for", [True, False])
async def test_its_error_is_that_of_whoever_runs_it(is_waited_for: bool):
    work = Work()
    begun = EagerWork(work.run())
    work.first.set_exception(ValueError("refused"))
    with pytest.raises(ValueError, match="refused"):
        await (begun.wait() if is_waited_for else begun.go_on())
    assert work.steps == ["begun", "ended"]


async def test_a_task_for_the_rest_can_be_cancelled():
    work = Work()
    rest = begin(work.run())
    assert rest is not None
    await asyncio.sleep(0)
    rest.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rest
    assert work.steps == ["begun", "ended"]
    assert work.first.cancelled()
