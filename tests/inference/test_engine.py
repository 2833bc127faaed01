"""The thread that runs forwards, fed from an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterator
from contextlib import aclosing

import pytest

from specmesh.inference.engine import Engine, Job
from specmesh.serving.errors import ResourceExhausted


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(max_queue=3)
    yield engine
    engine.stop()


class Blocker:
    """A job that holds the engine until it is released."""

    def __init__(self, engine: Engine) -> None:
        self._started = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._release = threading.Event()
        self._task = asyncio.create_task(engine.run(self._work))

    def _work(self, job: Job[str]) -> str:
        self._loop.call_soon_threadsafe(self._started.set)
        self._release.wait(10)
        return "released"

    async def __aenter__(self) -> Blocker:
        await self._started.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()
        assert await self._task == "released"

    def release(self) -> None:
        self._release.set()


async def queued(engine: Engine, depth: int) -> None:
    """Return once ``depth`` calls wait; they enter the queue as the loop turns."""
    async with asyncio.timeout(10):
        while engine.queue_depth < depth:  # noqa: ASYNC110 - the queue tells nobody
            await asyncio.sleep(0)


async def test_result_comes_from_the_engines_thread(engine):
    assert await engine.run(lambda job: threading.current_thread().name) == "engine"


async def test_stream_yields_items_in_order(engine):
    async with aclosing(engine.stream(lambda job: iter_of(1, 2, 3))) as items:
        assert [item async for item in items] == [1, 2, 3]


def iter_of(*items: int) -> Generator[int, None, None]:
    yield from items


async def test_item_is_there_before_the_next_is_made(engine):
    proceed = threading.Event()

    def work(job: Job[int]) -> Generator[int, None, None]:
        yield 1
        assert proceed.wait(10)
        yield 2

    async with aclosing(engine.stream(work)) as items:
        assert await anext(items) == 1
        proceed.set()
        assert await anext(items) == 2


async def test_error_reaches_the_caller_and_the_engine_lives_on(engine):
    def fail(job: Job[int]) -> int:
        raise FloatingPointError("NaN")

    with pytest.raises(FloatingPointError, match="NaN"):
        await engine.run(fail)
    assert await engine.run(lambda job: 5) == 5


async def test_error_between_items_comes_after_the_items(engine):
    def work(job: Job[int]) -> Generator[int, None, None]:
        yield 1
        raise FloatingPointError

    async with aclosing(engine.stream(work)) as items:
        assert await anext(items) == 1
        with pytest.raises(FloatingPointError):
            await anext(items)


async def test_jobs_run_one_after_the_other_first_come_first_served(engine):
    order: list[str] = []

    def work(name: str) -> int:
        order.extend([f"{name} begins", f"{name} ends"])
        return 0

    async with Blocker(engine) as blocker:
        tasks = []
        for depth, name in enumerate(["a", "b", "c"], start=1):
            tasks.append(asyncio.create_task(engine.run(lambda job, name=name: work(name))))
            await queued(engine, depth)
        blocker.release()
        await asyncio.gather(*tasks)
    assert order == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


async def test_waiting_time_is_told(engine):
    async with Blocker(engine) as blocker:
        waiting = asyncio.create_task(engine.run(lambda job: job.queue_ms))
        await queued(engine, 1)
        assert engine.queue_depth == 1
        blocker.release()
        assert await waiting > 0


async def test_cancelled_job_that_waits_never_runs(engine):
    ran = []
    async with Blocker(engine) as blocker:
        waiting = asyncio.create_task(engine.run(lambda job: ran.append(1) or 1))
        await queued(engine, 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        blocker.release()
        assert await engine.run(lambda job: 2) == 2
    assert ran == []


async def test_closed_stream_ends_before_the_next_item(engine):
    made = []
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    proceed = threading.Event()

    def work(job: Job[int]) -> Generator[int, None, None]:
        try:
            for number in range(100):
                made.append(number)
                yield number
                assert proceed.wait(10)
        finally:
            loop.call_soon_threadsafe(ended.set)

    async with aclosing(engine.stream(work)) as items:
        assert await anext(items) == 0
    proceed.set()
    await asyncio.wait_for(ended.wait(), 10)
    assert made == [0, 1]  # the item at hand when the stream was closed, and no more


async def test_running_job_can_ask_whether_it_was_cancelled(engine):
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[bool] = loop.create_future()
    started = asyncio.Event()
    proceed = threading.Event()

    def work(job: Job[int]) -> int:
        loop.call_soon_threadsafe(started.set)
        assert proceed.wait(10)
        loop.call_soon_threadsafe(asked.set_result, job.cancelled)
        return 0

    task = asyncio.create_task(engine.run(work))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    proceed.set()
    assert await asyncio.wait_for(asked, 10)


async def test_full_queue_refuses_at_once(engine):
    async with Blocker(engine) as blocker:
        tasks = []
        for depth in (1, 2, 3):
            tasks.append(asyncio.create_task(engine.run(lambda job: 1)))
            await queued(engine, depth)
        with pytest.raises(ResourceExhausted) as refusal:
            await engine.run(lambda job: 1)
        assert refusal.value.reason == "QUEUE_FULL"
        assert refusal.value.retry_after_s
        blocker.release()
        assert await asyncio.gather(*tasks) == [1, 1, 1]


async def test_stop_ends_the_thread_after_the_jobs_before():
    engine = Engine(max_queue=3)
    assert await engine.run(lambda job: threading.current_thread().name) == "engine"
    engine.stop()
    assert not any(thread.name == "engine" for thread in threading.enumerate())
