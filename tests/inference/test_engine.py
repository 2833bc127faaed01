"""The thread that runs forwards, fed from an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterator
from contextlib import aclosing

import pytest

from specmesh.inference.engine import Engine, Job
from specmesh.inference.model import Interrupted
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


async def test_cancelled_job_that_waits_leaves_the_queue_at_once_and_never_runs(engine):
    ran = []
    async with Blocker(engine) as blocker:
        waiting = asyncio.create_task(engine.run(lambda job: ran.append(1) or 1))
        await queued(engine, 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting  # while the blocker still runs
        assert engine.queue_depth == 0
        blocker.release()
        assert await engine.run(lambda job: 2) == 2
    assert ran == []


async def test_closed_stream_ends_before_the_next_item(engine):
    made = []
    ended = []

    def work(job: Job[int]) -> Generator[int, None, None]:
        try:
            for number in range(100):
                made.append(number)
                yield number
                assert job.cancellation.wait(10)
        finally:
            ended.append(True)

    async with aclosing(engine.stream(work)) as items:
        assert await anext(items) == 0
    assert ended  # by the time the stream is closed
    assert made == [0, 1]  # the item at hand when the stream was closed, and no more


async def started(engine: Engine, work) -> asyncio.Task:
    """A call whose job is under way."""
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def begin(job: Job):
        loop.call_soon_threadsafe(begun.set)
        return work(job)

    task = asyncio.create_task(engine.run(begin))
    await asyncio.wait_for(begun.wait(), 10)
    return task


async def test_cancelled_call_ends_when_its_job_has_stopped(engine):
    proceed = threading.Event()
    stopped = []

    def work(job: Job[int]) -> int:
        assert job.cancellation.wait(10)
        assert proceed.wait(10)
        stopped.append(True)
        return 0

    task = await started(engine, work)
    for _ in range(3):  # however often
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=0.02)
        assert not done
    proceed.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
    assert stopped


async def test_interrupted_job_frees_the_engine(engine):
    def work(job: Job[int]) -> int:
        assert job.cancellation.wait(10)
        raise Interrupted

    task = await started(engine, work)
    following = asyncio.create_task(engine.run(lambda job: 5))
    await queued(engine, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.wait_for(following, 10) == 5


async def test_deadline_of_a_call_stops_its_job(engine):
    stopped = []

    def work(job: Job[int]) -> int:
        stopped.append(job.cancellation.wait(10))
        raise Interrupted

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await engine.run(work)
    assert stopped == [True]


async def test_interruption_without_a_cancellation_is_an_error(engine):
    def work(job: Job[int]) -> int:
        raise Interrupted

    with pytest.raises(Interrupted):
        await engine.run(work)


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
