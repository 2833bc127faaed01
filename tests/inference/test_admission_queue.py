"""Who starts next where there is no room for all, step by step, on real jobs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.engine import admission_queue
from specmesh.inference.engine.admission_queue import AdmissionQueue
from specmesh.inference.engine.blocks.pool import NoRoom
from specmesh.inference.engine.engine import Engine
from specmesh.inference.engine.job import End, Job
from specmesh.inference.model import Cancellation, ForwardRequest
from specmesh.serving.errors import ResourceExhaustedStatus

ROOM = 10
MOST = 3
"""Jobs that may overtake another."""
LOGITS = np.zeros((1, 1), np.float32)


@pytest.fixture(autouse=True)
def few_overtakes(monkeypatch):
    monkeypatch.setattr(admission_queue, "MAX_OVERTAKES", MOST)


@dataclass(eq=False)
class Sequence:
    cancellation: Cancellation
    num_pending_tokens: int = 0

    def close(self, keep) -> None:
        pass


class Room:
    """Jobs that take so much of it for so many forward passes."""

    def __init__(self) -> None:
        self.left = ROOM
        self.started: list[str] = []

    def work(self, name: str, size: int, num_forwards: int):
        def steps(job: Job):
            if size > self.left:
                raise NoRoom("nothing left")
            self.left -= size
            self.started.append(name)
            try:
                for _ in range(num_forwards):
                    yield ForwardRequest(Sequence(job.cancellation), EMPTY)
            finally:
                self.left += size
            yield name

        return steps


class Steps:
    """An engine's steps without its thread."""

    def __init__(self, max_batch: int = 8) -> None:
        self.room = Room()
        self.queue = AdmissionQueue()
        self.running: list[Job[str]] = []
        self._max_batch = max_batch

    def arrive(self, name: str, size: int, num_forwards: int = 1) -> Job[str]:
        job = Job(self.room.work(name, size, num_forwards))
        self.queue.append(job)
        return job

    def step(self) -> list[str]:
        """Start what may start, and run a forward pass; return the names of what started."""
        num_before = len(self.room.started)
        self.running[:] = [job for job in self.running if not job.ended_if_cancelled()]
        self.queue.admit(self.running, self._max_batch)
        self.running[:] = [job for job in self.running if job.go_on(LOGITS)]
        return self.room.started[num_before:]


async def test_small_job_starts_before_a_large_one_without_room():
    steps = Steps()
    steps.arrive("long", 6, num_forwards=3)
    steps.arrive("large", 8)
    steps.arrive("small", 2)
    assert steps.step() == ["long", "small"]
    assert steps.step() == []
    assert steps.step() == []
    assert steps.step() == ["large"]


async def test_few_jobs_overtake_one_and_then_room_is_reserved_for_it():
    steps = Steps()
    steps.arrive("long", 6, num_forwards=5)
    steps.arrive("large", 8)
    for number in range(5):
        steps.arrive(f"small{number}", 2)
    assert steps.step() == ["long", "small0", "small1"]
    assert steps.step() == ["small2"]  # the third, beside which there would be room for another
    assert [steps.step() for _ in range(3)] == [[], [], []]
    assert steps.step() == ["large", "small3"]
    assert steps.step() == ["small4"]


async def test_each_of_several_large_jobs_is_overtaken_as_often_as_it_may():
    steps = Steps()
    steps.arrive("long", 9, num_forwards=4)
    for name, size in [("small0", 1), ("large0", 5), ("small1", 1), ("large1", 6), ("small2", 1)]:
        steps.arrive(name, size)
    assert steps.step() == ["long", "small0"]
    assert steps.step() == ["small1"]
    assert steps.step() == ["small2"]
    assert steps.step() == []
    assert steps.step() == ["large0"]
    assert steps.step() == ["large1"]


async def test_cancelled_job_without_room_lets_those_behind_it_start():
    steps = Steps()
    steps.arrive("long", 9, num_forwards=9)
    cancelled = steps.arrive("large", 8)
    for number in range(MOST + 1):
        steps.arrive(f"small{number}", 1)
    for _ in range(MOST):
        steps.step()
    assert steps.step() == []
    cancelled.cancel()
    assert steps.step() == [f"small{MOST}"]
    assert isinstance(await cancelled.next(), End)


async def test_job_without_room_although_nothing_runs_is_refused():
    steps = Steps()
    refused = steps.arrive("vast", ROOM + 1)
    steps.arrive("small", 1)
    assert steps.step() == ["small"]
    with pytest.raises(ResourceExhaustedStatus) as refusal:
        await refused.next()
    assert refusal.value.reason == "KV_CACHE_FULL"


JOBS = st.lists(
    st.tuples(
        st.integers(0, 3),  # steps until it arrives
        st.integers(1, ROOM),
        st.integers(1, 6),
    ),
    max_size=30,
)


@given(jobs=JOBS, max_batch=st.integers(1, 6))
def test_every_job_starts_and_none_is_overtaken_too_often_or_held_up_for_nothing(jobs, max_batch):
    async def run() -> None:
        steps, arrived = Steps(max_batch), []
        sizes = {f"job{number}": size for number, (_, size, _) in enumerate(jobs)}
        for number, (pause, size, num_forwards) in enumerate(jobs):
            for _ in range(pause):
                steps.step()
                check(steps, arrived, sizes, max_batch)
            steps.arrive(f"job{number}", size, num_forwards)
            arrived.append(f"job{number}")
        for _ in range(sum(num_forwards + 1 for *_, num_forwards in jobs)):
            steps.step()
            check(steps, arrived, sizes, max_batch)
        assert sorted(steps.room.started) == sorted(sizes)
        assert steps.room.left == ROOM

    asyncio.run(run())


def check(steps: Steps, arrived: list[str], sizes: dict[str, int], max_batch: int) -> None:
    started = steps.room.started
    waiting = [name for name in arrived if name not in started]
    order = {name: number for number, name in enumerate(arrived)}
    place = {name: number for number, name in enumerate(started)}

    def num_overtaken(name: str) -> int:
        before = started[: place.get(name, len(started))]
        return sum(order[other] > order[name] for other in before)

    assert all(num_overtaken(name) <= MOST for name in arrived)
    if len(steps.running) == max_batch:
        return
    # After the forward pass, so that jobs may have ended that were in the way before it.
    steps.queue.admit(steps.running, max_batch)
    waiting = [name for name in arrived if name not in started]
    for name in waiting if len(steps.running) < max_batch else []:
        reserved = any(num_overtaken(each) == MOST for each in waiting if order[each] < order[name])
        assert reserved or sizes[name] > steps.room.left


class RoomyModel:
    """A model whose only purpose is to let jobs run."""

    max_batch = 8
    pool = None

    def forward(self, requests):
        return [LOGITS for _ in requests]


async def test_engine_serves_a_large_call_among_a_stream_of_small_ones():
    """With the small ones alone there is always too little room for it."""
    room = Room()
    engine = Engine(RoomyModel, max_queue=64)
    await engine.ready()
    served = asyncio.Event()

    async def small(number: int) -> None:
        while not served.is_set():
            await engine.run(room.work(f"small{number}", 2, num_forwards=3 + number))

    smalls = [asyncio.create_task(small(number)) for number in range(ROOM // 2)]
    await asyncio.sleep(0.01)
    try:
        assert await asyncio.wait_for(engine.run(room.work("large", ROOM, 1)), 5) == "large"
    finally:
        served.set()
        await asyncio.gather(*smalls)
        await asyncio.to_thread(engine.stop)
