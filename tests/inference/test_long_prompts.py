"""Long prompts leave places to others, however many they are; step by step, on real jobs."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.inference.test_admission_queue import LOGITS, MOST, ROOM, Sequence, Steps

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.engine import admission_queue
from specmesh.inference.engine.blocks.pool import BlockPool, NoRoom
from specmesh.inference.engine.blocks.rereads import RereadLater
from specmesh.inference.engine.job import End, Job, NoPlace
from specmesh.inference.model import ForwardRequest


@pytest.fixture(autouse=True)
def few_overtakes(monkeypatch):
    monkeypatch.setattr(admission_queue, "MAX_OVERTAKES", MOST)


class Prefills:
    """A model that computes a chunk of one long prefix in each forward pass, the oldest first."""

    CHUNK = 100
    pool = None

    def __init__(self) -> None:
        self.sequences: list[Sequence] = []
        self.left = ROOM
        self.started: list[str] = []

    def open(self, length, cancellation, room) -> Sequence:
        return Sequence(cancellation, length)

    def work(self, name: str, length: int, size: int):
        def steps(job: Job):
            if size > self.left:
                raise NoRoom("nothing left")
            sequence = job.open(self, length, 0)
            self.left -= size
            self.started.append(name)
            self.sequences.append(sequence)
            try:
                yield ForwardRequest(sequence, EMPTY)
            finally:
                self.left += size
                self.sequences.remove(sequence)
            yield name

        return steps

    def forward(self) -> None:
        long = [each for each in self.sequences if each.num_pending_tokens > BLOCK_TOKENS]
        for sequence in self.sequences:
            if sequence not in long:
                sequence.num_pending_tokens = 0
        for sequence in long[:1]:
            sequence.num_pending_tokens = max(0, sequence.num_pending_tokens - self.CHUNK)


class Prefilling(Steps):
    """An engine's steps for jobs whose prefixes are computed first."""

    def __init__(self, max_batch: int = 8) -> None:
        super().__init__(max_batch)
        self.room = Prefills()

    def step(self) -> list[str]:
        num_before = len(self.room.started)
        self.queue.admit(self.running, self._max_batch)
        self.room.forward()
        self.running[:] = [
            job
            for job in self.running
            if job.go_on(None if job.request.sequence.num_pending_tokens else LOGITS)
        ]
        return self.room.started[num_before:]


@pytest.mark.parametrize("num_long", [3, 8, 40])
async def test_however_many_long_prompts_run_or_wait_a_short_call_starts_at_once(num_long):
    steps = Prefilling()
    for number in range(num_long):
        steps.arrive(f"long{number}", 1000)
    assert steps.step() == [f"long{number}" for number in range(min(num_long, 4))]
    for number in range(3 * MOST):  # more than may overtake a job that lacks room
        steps.arrive(f"short{number}", 16)
        assert steps.step() == [f"short{number}"]


async def test_long_prompts_start_in_order_as_others_are_computed():
    steps = Prefilling()
    for number in range(7):
        steps.arrive(f"long{number}", 200)
    started = [steps.step() for _ in range(8)]
    assert started[0] == [f"long{number}" for number in range(4)]
    assert started[2::2] == [["long4"], ["long5"], ["long6"]]
    assert started[1::2] == [[]] * 4


async def test_a_long_prompt_that_waits_for_its_turn_holds_no_room():
    steps = Prefilling(max_batch=2)
    steps.arrive("first", 200)
    steps.arrive("second", 200, ROOM - 1)
    assert steps.step() == ["first"]
    steps.arrive("short", 1, ROOM - 1)
    assert steps.step() == ["short"]
    assert steps.step() == ["second"]


@given(
    jobs=st.lists(st.tuples(st.integers(1, 400), st.integers(0, ROOM)), max_size=20),
    max_batch=st.integers(1, 6),
)
def test_prompts_of_any_length_all_start_and_few_are_computed_at_a_time(jobs, max_batch):
    async def run() -> None:
        steps = Prefilling(max_batch)
        for number, (length, size) in enumerate(jobs):
            steps.arrive(f"job{number}", length, size)
        for _ in range(6 * len(jobs) + 1):
            steps.step()
            num_long = sum(job.is_prefilling for job in steps.running)
            assert num_long <= max(1, max_batch // 2)
        assert len(steps.room.started) == len(jobs)
        assert steps.room.left == ROOM

    asyncio.run(run())


async def test_a_cancelled_long_prompt_leaves_the_queue_without_a_turn():
    steps = Prefilling(max_batch=2)
    steps.arrive("first", 1000)
    cancelled = steps.arrive("second", 1000)
    steps.step()
    cancelled.cancel()
    steps.step()
    assert len(steps.queue) == 0
    assert isinstance(await cancelled.next(), End)


async def test_a_prefix_that_is_put_off_holds_up_no_other_and_is_tried_with_each_forward():
    steps, tries = Prefilling(), []

    def reread(name: str, num_refused: int):
        def work(job: Job):
            tries.append(name)
            if tries.count(name) <= num_refused:
                raise RereadLater
            yield from steps.room.work(name, 1, 0)(job)

        return work

    for name in ("first", "second"):
        steps.queue.append(Job(reread(name, 2)))
    steps.arrive("long", 200)
    assert steps.step() == ["long"]
    steps.arrive("short", 1)
    assert steps.step() == ["short"]
    assert [steps.step() for _ in range(2)] == [["first"], ["second"]]
    assert tries == ["first", "second", "first", "first", "second", "second"]


async def test_a_long_prompt_without_a_place_evicts_nothing():
    pool = BlockPool(8)
    held = PrefixChain(range(4 * BLOCK_TOKENS))
    pool.close(pool.open(held, 1), held)

    class Blocks:
        def __init__(self) -> None:
            self.pool = pool

        def open(self, *_):
            raise AssertionError

    job = Job(lambda job: iter(()))
    job.may_prefill = False
    with pytest.raises(NoPlace):
        job.open(Blocks(), [7] * (6 * BLOCK_TOKENS), 1)
    assert pool.num_cached >= 4
