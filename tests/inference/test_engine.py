"""The thread that runs forwards for many jobs at once, fed from an event loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing

import numpy as np
import pytest

from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.engine import engine as engine_module
from specmesh.inference.engine import pulse
from specmesh.inference.engine.blocks.pool import NoRoom, TooLarge
from specmesh.inference.engine.engine import Engine
from specmesh.inference.engine.job import Job, deliver
from specmesh.inference.model import (
    Cancellation,
    DeviceLost,
    ForwardRequest,
    Interrupted,
    ModelNotLoadable,
)
from specmesh.serving.errors import (
    FailedPreconditionStatus,
    ResourceExhaustedStatus,
    UnavailableStatus,
)

PATIENCE_S = 10


class ToySequence:
    """What a job asks with: a name, and when it is to be interrupted."""

    def __init__(self, name: str, cancellation: Cancellation) -> None:
        self.name = name
        self.cancellation = cancellation


class ToyModel:
    """Its logits count its forwards. Held, a forward waits until it is told to go on."""

    def __init__(self) -> None:
        self.max_batch = 8
        self.pool = None
        self.batches: list[list[str]] = []
        self.script: deque[Callable[[Sequence[ForwardRequest]], object]] = deque()
        """What to do in the next forwards, before they are answered; may raise."""
        self.thread = ""
        self.num_rooms = 8
        self._loop = asyncio.get_running_loop()
        self._began: asyncio.Queue[None] = asyncio.Queue()
        self._go_on = threading.Semaphore(0)
        self._held = False

    def open(self, name: str, job: Job) -> ToySequence:
        if not self.num_rooms:
            raise NoRoom("nothing left")
        self.num_rooms -= 1
        return ToySequence(name, job.cancellation)

    def close(self) -> None:
        self.num_rooms += 1

    def forward(self, asks: Sequence[ForwardRequest]):
        self.thread = threading.current_thread().name
        self.batches.append([ask.sequence.name for ask in asks])
        if self._held:
            self._loop.call_soon_threadsafe(self._began.put_nowait, None)
            assert self._go_on.acquire(timeout=PATIENCE_S)
        if self.script:
            answer = self.script.popleft()(asks)
            if answer is not None:
                return answer
        return [np.full((1, 1), len(self.batches), np.float32) for _ in asks]

    def hold(self) -> None:
        self._held = True

    async def began(self) -> None:
        """Return once one forward more is under way."""
        await asyncio.wait_for(self._began.get(), PATIENCE_S)

    def go_on(self, *, for_ever: bool = False) -> None:
        if for_ever:
            self._held = False
        self._go_on.release()


@pytest.fixture
async def model() -> ToyModel:
    return ToyModel()


@pytest.fixture
async def engine(model) -> AsyncIterator[Engine]:
    engine = Engine(lambda: model, max_queue=3)
    await engine.ready()
    yield engine
    model.go_on(for_ever=True)
    await asyncio.to_thread(engine.stop)


class Jobs:
    """Jobs of so many forwards each; they tell whether they were closed."""

    def __init__(self, model: ToyModel, engine: Engine) -> None:
        self.model = model
        self.engine = engine
        self.closed: list[str] = []

    def work(self, name: str, num_forwards: int = 1):
        def steps(job: Job):
            sequence = self.model.open(name, job)
            try:
                answers = []
                for _ in range(num_forwards):
                    logits = yield ForwardRequest(sequence, EMPTY)
                    answers.append(int(logits[0, 0]))
            finally:
                self.closed.append(name)
                self.model.close()
            yield answers

        return steps

    def begin(self, name: str, num_forwards: int = 1) -> asyncio.Task[list[int]]:
        """A call under way, its job in the queue or at work."""
        return asyncio.create_task(self.engine.run(self.work(name, num_forwards)))

    async def queue(self, *names: str, num_forwards: int = 1) -> list[asyncio.Task[list[int]]]:
        """Calls whose jobs wait, in this order, while a held forward is under way."""
        tasks = []
        for name in names:
            depth = self.engine.queue_depth + 1
            tasks.append(self.begin(name, num_forwards))
            async with asyncio.timeout(PATIENCE_S):
                while self.engine.queue_depth < depth:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0)
        return tasks


@pytest.fixture
def jobs(model, engine) -> Jobs:
    return Jobs(model, engine)


async def test_forwards_run_on_the_engines_thread(model, jobs):
    assert await jobs.begin("a") == [1]
    assert model.thread == "engine"


async def test_load_runs_on_the_engines_thread_and_its_error_is_told():
    def load():
        raise ModelNotLoadable(threading.current_thread().name)

    engine = Engine(load, max_queue=1)
    with pytest.raises(ModelNotLoadable, match="engine"):
        await engine.ready()
    engine.stop()


async def test_jobs_that_wait_together_share_a_forward(model, jobs):
    model.hold()
    first = jobs.begin("a")
    await model.began()
    others = await jobs.queue("b", "c")
    model.go_on(for_ever=True)
    assert await first == [1]
    assert await asyncio.gather(*others) == [[2], [2]]
    assert model.batches == [["a"], ["b", "c"]]


async def test_callers_are_woken_once_all_jobs_of_a_forward_have_used_it(model, jobs, monkeypatch):
    def noted(together: Sequence[Job]) -> None:
        jobs.closed.append(f"{len(together)} woken")
        deliver(together)

    model.hold()
    first = jobs.begin("a")
    await model.began()
    others = await jobs.queue("b", "c")
    monkeypatch.setattr(engine_module, "deliver", noted)
    model.go_on(for_ever=True)
    await asyncio.gather(first, *others)
    used = [name for name in jobs.closed if name in {"b", "c"}]
    assert jobs.closed[-3:] == [*used, "2 woken"]


async def test_a_job_joins_between_two_forwards_of_another_and_leaves_it_to_go_on(model, jobs):
    model.hold()
    long = jobs.begin("long", 4)
    await model.began()
    (short,) = await jobs.queue("short")
    model.go_on()
    await model.began()
    model.go_on(for_ever=True)
    assert await short == [2]
    assert await long == [1, 2, 3, 4]
    assert model.batches == [["long"], ["long", "short"], ["long"], ["long"]]


async def test_no_forward_is_for_more_than_the_model_can_batch(model, jobs):
    model.max_batch = 2
    model.hold()
    first = jobs.begin("a")
    await model.began()
    others = await jobs.queue("b", "c", "d")
    model.go_on(for_ever=True)
    await asyncio.gather(first, *others)
    assert model.batches == [["a"], ["b", "c"], ["d"]]


async def test_a_model_that_cannot_batch_has_its_jobs_one_after_the_other(model, jobs):
    model.max_batch = 1
    model.hold()
    first = jobs.begin("a", 2)
    await model.began()
    others = await jobs.queue("b", "c", num_forwards=2)
    model.go_on(for_ever=True)
    await asyncio.gather(first, *others)
    assert model.batches == [["a"], ["a"], ["b"], ["b"], ["c"], ["c"]]


async def test_only_as_many_jobs_make_way_as_others_wait(model, engine, jobs):
    def obliging(name: str):
        def steps(job: Job):
            sequence, num_forwards = model.open(name, job), 0
            while num_forwards < 10 and not job.others_wait:
                yield ForwardRequest(sequence, EMPTY)
                num_forwards += 1
            yield num_forwards

        return steps

    model.max_batch = 2
    model.hold()
    first = asyncio.create_task(engine.run(obliging("first")))
    await model.began()
    second = asyncio.create_task(engine.run(obliging("second")))
    model.go_on()
    await model.began()
    (third,) = await jobs.queue("third")
    model.go_on(for_ever=True)
    assert await asyncio.gather(first, second, third) == [2, 10, [3]]


async def test_a_job_that_gets_over_a_failed_forward_goes_on(model, engine):
    def fail(_):
        raise ValueError("once")

    def work(job: Job):
        sequence = model.open("a", job)
        try:
            yield ForwardRequest(sequence, EMPTY)
        except ValueError:
            logits = yield ForwardRequest(sequence, EMPTY)
        model.close()
        yield int(logits[0, 0])

    model.script.append(fail)
    async with asyncio.timeout(PATIENCE_S):
        assert await engine.run(work) == 2


async def test_an_ask_without_an_answer_yet_is_asked_again(model, jobs):
    model.script.append(lambda asks: [None] * len(asks))
    assert await jobs.begin("a") == [2]
    assert model.batches == [["a"], ["a"]]


async def test_stream_yields_items_in_order_and_before_the_next_forward(model, engine):
    def work(job: Job):
        sequence = model.open("a", job)
        for _ in range(3):
            logits = yield ForwardRequest(sequence, EMPTY)
            yield int(logits[0, 0])

    model.hold()
    items = []
    async with aclosing(engine.stream(work)) as stream:
        for _ in range(3):
            following = asyncio.ensure_future(anext(stream))
            await model.began()
            model.go_on()
            items.append(await following)
    assert items == [1, 2, 3]


async def test_error_of_a_job_reaches_its_caller_alone(model, jobs, engine):
    def fail(job: Job):
        yield ForwardRequest(model.open("bad", job), EMPTY)
        raise FloatingPointError("NaN")

    model.hold()
    first = jobs.begin("a")
    await model.began()
    (good,) = await jobs.queue("good")
    bad = asyncio.create_task(engine.run(fail))
    await asyncio.sleep(0)
    model.go_on(for_ever=True)
    with pytest.raises(FloatingPointError, match="NaN"):
        await bad
    assert await good == [2]
    assert await first == [1]
    assert model.batches[1] == ["good", "bad"]


async def test_error_after_the_one_item_is_logged_and_not_the_callers(engine, caplog):
    def fail_late(job: Job):
        yield "answer"
        raise FloatingPointError("late")

    assert await engine.run(fail_late) == "answer"
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["late"]


async def test_error_before_the_first_ask_reaches_the_caller(engine):
    def fail(job: Job):
        raise KeyError("early")
        yield

    with pytest.raises(KeyError, match="early"):
        await engine.run(fail)


def refuse(name: str, error: type[BaseException] = ValueError) -> Callable:
    """Every forward fails that ``name`` has a part in."""

    def fail(asks: Sequence[ForwardRequest]) -> None:
        if name in [ask.sequence.name for ask in asks]:
            raise error(name)

    return fail


async def test_failed_forward_is_run_for_each_job_alone_and_only_the_guilty_one_fails(model, jobs):
    model.hold()
    first = jobs.begin("a")
    await model.began()
    others = await jobs.queue("b", "bad", "c", num_forwards=2)
    model.script += [lambda asks: None, *[refuse("bad")] * 5]
    model.go_on(for_ever=True)
    assert await first == [1]
    assert await others[0] == [3, 6]
    assert await others[2] == [5, 6]
    with pytest.raises(ValueError, match="bad"):
        await others[1]
    assert model.batches == [["a"], ["b", "bad", "c"], ["b"], ["bad"], ["c"], ["b", "c"]]
    assert sorted(jobs.closed) == ["a", "b", "bad", "c"]


async def test_job_of_a_failed_forward_that_was_cancelled_is_not_run_again(model, jobs):
    model.hold()
    first = jobs.begin("a")
    await model.began()
    others = await jobs.queue("b", "c", "d")
    model.script += [lambda asks: None, refuse("d")]
    model.go_on()
    await model.began()
    others[1].cancel()
    await asyncio.sleep(0)
    model.go_on(for_ever=True)
    await asyncio.wait([first, *others])
    assert model.batches == [["a"], ["b", "c", "d"], ["b"], ["d"]]
    assert await others[2] == [4]


async def test_memory_of_a_failed_forward_is_free_before_its_jobs_run_apart(model, jobs):
    class Activations:
        pass

    held: list[weakref.ref] = []

    def fill_the_memory(asks: Sequence[ForwardRequest]) -> None:
        activations = Activations()
        held.append(weakref.ref(activations))
        raise MemoryError(len(held))

    def check_memory(asks: Sequence[ForwardRequest]) -> None:
        assert held[0]() is None

    model.hold()
    first = jobs.begin("a")
    await model.began()
    others = await jobs.queue("b", "c")
    model.script += [lambda asks: None, fill_the_memory, check_memory]
    model.go_on(for_ever=True)
    assert await asyncio.gather(first, *others) == [[1], [3], [4]]


async def test_job_for_which_there_is_no_memory_alone_is_refused_by_name(model, jobs):
    model.script.append(refuse("large", MemoryError))
    with pytest.raises(ResourceExhaustedStatus) as refusal:
        await jobs.begin("large")
    assert refusal.value.reason == "OUT_OF_MEMORY"
    assert await jobs.begin("small") == [2]


async def broken(engine: Engine) -> str:
    return await asyncio.wait_for(engine.broken(), PATIENCE_S)


async def break_with(answer: Callable, model, jobs, engine) -> str:
    """One job waits, two are in a forward that the thread doesn't survive."""
    model.max_batch = 2
    model.hold()
    first = jobs.begin("a")
    await model.began()
    others = await jobs.queue("b", "c", "d")
    model.script += [lambda asks: None, answer]
    model.go_on(for_ever=True)
    assert await first == [1]
    reason = await broken(engine)
    for task in others:
        with pytest.raises(UnavailableStatus) as failure:
            await asyncio.wait_for(task, PATIENCE_S)
        assert failure.value.reason == "ENGINE_BROKEN"
    assert engine.is_broken
    with pytest.raises(UnavailableStatus, match="cannot compute"):
        await jobs.begin("late")
    return reason


async def test_calls_of_an_engine_whose_thread_died_are_unavailable(model, jobs, engine):
    assert "shorter" in await break_with(lambda asks: [], model, jobs, engine)


async def test_engine_that_lost_its_device_is_broken(model, jobs, engine):
    def lose(asks: Sequence[ForwardRequest]) -> None:
        raise DeviceLost("illegal memory access")

    assert "illegal memory access" in await break_with(lose, model, jobs, engine)


async def test_calls_of_an_engine_that_hangs_are_unavailable(model, jobs, engine, monkeypatch):
    monkeypatch.setattr(pulse, "LEAST_SECONDS", 0.02)
    monkeypatch.setattr(engine_module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(pulse, "LOOK_SECONDS", 0.01)
    hanging = threading.Event()
    try:
        reason = await break_with(lambda asks: hanging.wait(PATIENCE_S), model, jobs, engine)
        assert reason == "a forward pass does not end"
        await asyncio.wait_for(asyncio.to_thread(engine.stop), PATIENCE_S)  # all the same
    finally:
        hanging.set()


def test_thread_is_given_up_after_many_times_its_longest_step(monkeypatch):
    now = 0.0
    monkeypatch.setattr(pulse.time, "monotonic", lambda: now)
    thread = pulse.Pulse()
    thread.beat()
    now = 3.0
    thread.beat()
    looks = [thread.has_stopped() for _ in range(152)]
    assert looks.index(True) == 3 * pulse.TIMES_LONGEST


def test_thread_is_given_up_after_the_time_that_an_operator_gives_it():
    thread = pulse.Pulse(5.0)
    thread.beat()
    looks = [thread.has_stopped() for _ in range(8)]
    assert looks.index(True) == 5


def test_thread_that_rests_or_goes_on_is_not_given_up():
    thread = pulse.Pulse()
    for _ in range(200):
        thread.beat()
        assert not thread.has_stopped()
    thread.rest()
    assert not any(thread.has_stopped() for _ in range(200))


def test_time_in_which_the_process_slept_does_not_count(monkeypatch):
    now = 0.0
    monkeypatch.setattr(pulse.time, "monotonic", lambda: now)
    thread = pulse.Pulse()
    thread.beat()
    assert not thread.has_stopped()
    now = 1e6
    assert not thread.has_stopped()


async def test_waiting_time_is_told(model, jobs, engine):
    def work(job: Job):
        yield ForwardRequest(model.open("b", job), EMPTY)
        yield job.queue_ms

    model.hold()
    first = jobs.begin("a")
    await model.began()
    waiting = asyncio.create_task(engine.run(work))
    await asyncio.sleep(0.01)
    model.go_on(for_ever=True)
    await first
    assert await waiting >= 10


async def test_cancelled_job_that_waits_leaves_the_queue_at_once_and_never_runs(
    model, jobs, engine
):
    model.hold()
    first = jobs.begin("a")
    await model.began()
    (waiting,) = await jobs.queue("b")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting  # while the forward still runs
    assert engine.queue_depth == 0
    model.go_on(for_ever=True)
    await first
    assert model.batches == [["a"]]


async def test_cancelled_job_is_out_of_the_next_forward_and_the_others_go_on(model, jobs):
    model.hold()
    first = jobs.begin("a", 3)
    await model.began()
    (second,) = await jobs.queue("b", num_forwards=3)
    model.go_on()
    await model.began()
    first.cancel()
    await asyncio.sleep(0)
    model.go_on(for_ever=True)
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == [2, 3, 4]
    assert model.batches == [["a"], ["a", "b"], ["b"], ["b"]]
    assert jobs.closed == ["a", "b"]


async def test_cancelled_call_ends_when_its_job_has_stopped(model, jobs):
    model.hold()
    task = jobs.begin("a", 2)
    await model.began()
    for _ in range(3):  # however often
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=0.02)
        assert not done
    assert jobs.closed == []
    model.go_on(for_ever=True)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE_S)
    assert jobs.closed == ["a"]
    assert model.batches == [["a"]]


def interrupted(asks: Sequence[ForwardRequest]) -> None:
    """Stop once nobody wants the forward."""
    for ask in asks:
        assert ask.sequence.cancellation.wait(PATIENCE_S)
    raise Interrupted


async def test_interrupted_forward_frees_the_engine(model, jobs):
    model.script.append(interrupted)
    model.hold()
    task = jobs.begin("a")
    await model.began()
    (following,) = await jobs.queue("b")
    model.go_on(for_ever=True)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.wait_for(following, PATIENCE_S) == [2]
    assert jobs.closed == ["a", "b"]


async def test_deadline_of_a_call_stops_its_job(model, jobs):
    model.script.append(interrupted)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await jobs.begin("a")
    assert jobs.closed == ["a"]


async def test_interruption_without_a_cancellation_is_an_error(model, jobs):
    def interrupt(asks: Sequence[ForwardRequest]) -> None:
        raise Interrupted

    model.script.append(interrupt)
    with pytest.raises(Interrupted):
        await jobs.begin("a")


async def test_closed_stream_ends_before_the_next_item(model, engine):
    made = []
    ended = []

    def work(job: Job):
        try:
            sequence = model.open("a", job)
            for number in range(100):
                made.append(number)
                yield number
                yield ForwardRequest(sequence, EMPTY)
        finally:
            ended.append(True)

    model.hold()
    items = engine.stream(work)
    assert await anext(items) == 0
    await model.began()
    closing = asyncio.create_task(items.aclose())
    await asyncio.sleep(0)
    assert not ended
    model.go_on(for_ever=True)
    await closing
    assert ended  # by the time the stream is closed
    assert made == [0]


async def test_job_without_room_waits_until_another_gives_some_back(model, jobs, engine):
    model.num_rooms = 1
    model.hold()
    first = jobs.begin("a", 2)
    await model.began()
    others = await jobs.queue("b", "c")
    model.go_on()
    await model.began()
    assert engine.queue_depth == 2
    model.go_on(for_ever=True)
    assert await first == [1, 2]
    assert await asyncio.gather(*others) == [[3], [4]]
    assert model.batches == [["a"], ["a"], ["b"], ["c"]]


async def test_job_that_waits_for_room_can_be_cancelled(model, jobs, engine):
    model.num_rooms = 1
    model.hold()
    first = jobs.begin("a", 2)
    await model.began()
    (waiting,) = await jobs.queue("b")
    model.go_on()
    await model.began()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, PATIENCE_S)
    model.go_on(for_ever=True)
    assert await first == [1, 2]


async def test_job_that_finds_no_room_in_an_idle_engine_is_refused(model, jobs):
    model.num_rooms = 0
    with pytest.raises(ResourceExhaustedStatus) as refusal:
        await jobs.begin("a")
    assert refusal.value.reason == "KV_CACHE_FULL"
    assert refusal.value.retry_after_s


async def test_job_that_never_fits_is_refused(engine):
    def work(job: Job):
        raise TooLarge(130, 64)
        yield

    with pytest.raises(FailedPreconditionStatus, match="need 130 tokens") as refusal:
        await engine.run(work)
    assert refusal.value.reason == "KV_CACHE_TOO_SMALL"
    assert refusal.value.metadata == {"num_tokens": "130", "kv_capacity_tokens": "64"}


async def test_full_queue_refuses_at_once(model, jobs):
    model.hold()
    first = jobs.begin("a")
    await model.began()
    others = await jobs.queue("b", "c", "d")
    with pytest.raises(ResourceExhaustedStatus) as refusal:
        await jobs.begin("e")
    assert refusal.value.reason == "QUEUE_FULL"
    assert refusal.value.retry_after_s
    model.go_on(for_ever=True)
    assert await asyncio.gather(first, *others) == [[1], [2], [2], [2]]


async def test_stop_ends_the_thread_after_the_jobs_before(model):
    engine = Engine(lambda: model, max_queue=3)
    await engine.ready()
    model.hold()
    task = Jobs(model, engine).begin("a", 2)
    await model.began()
    stopping = asyncio.create_task(asyncio.to_thread(engine.stop))
    model.go_on(for_ever=True)
    model.go_on()
    assert await task == [1, 2]
    await stopping
    assert not any(thread.name == "engine" for thread in threading.enumerate())


async def test_who_gives_up_waiting_for_the_model_leaves_the_thread_alone(model):
    loading = threading.Event()

    def load() -> ToyModel:
        assert loading.wait(PATIENCE_S)
        return model

    engine = Engine(load, max_queue=1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(engine.ready(), 0.01)
    loading.set()
    assert await engine.ready() is model
    await asyncio.to_thread(engine.stop)


async def test_job_after_the_stop_is_refused(model, engine):
    await asyncio.to_thread(engine.stop)
    with pytest.raises(UnavailableStatus) as refusal:
        await Jobs(model, engine).begin("late")
    assert refusal.value.reason == "DRAINING"
