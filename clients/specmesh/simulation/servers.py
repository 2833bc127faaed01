"""Servers on the virtual clock: drafters and replicas of the target, whose work takes time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from specmesh.decoding.predict.returns import Returns
from specmesh.simulation.clock import Clock, Timer
from specmesh.simulation.law import ForwardShape, Law


@dataclass(frozen=True, slots=True)
class Step:
    """The part of one job in a forward."""

    tokens: float = 1.0
    context: float = 0.0
    """Tokens that it attends to."""
    starts: bool = False
    """True if a draft begins with it."""
    heads: bool = False
    """True if the target's heads work instead of the target."""


@dataclass(frozen=True, slots=True)
class SharedForward:
    """A forward that was made: its time, the jobs that shared it, and their tokens."""

    seconds: float = 0.0
    calls: int = 0
    tokens: int = 0


@dataclass(slots=True, eq=False)
class SimulatedJob:
    """Consecutive forwards for one request. ``work`` yields the job's part in each of them, and
    goes on when that is done."""

    request: int
    work: Iterator[Step]
    lost: Callable[[], None]
    """Called if the server dies before the job is done."""
    hop_s: float = 0.0
    """Time of the way to the server, for its call and its cancellation."""
    is_cancelled: bool = False
    """True once its cancellation has arrived, perhaps before the job itself."""
    step: Step | None = None
    """The step to do or being done; None before it is sent, and when it is done."""
    server: SimulatedServer | None = None
    """The server that has it; None before it is sent."""
    arrived_s: float = 0.0
    """The time at which it arrived there."""
    queue_s: float = 0.0
    """Time from then to its first forward."""
    forward: SharedForward = SharedForward()
    """The latest of its forwards that was made."""
    others_wait: bool = False
    """True once another job waits for this one's room: if it need not go on, it makes way."""


class SimulatedServer:
    """A server of up to ``max_batch`` concurrent jobs, first come, first served, as in an engine.

    Jobs share each forward; those that arrive meanwhile wait for the next one, which waits a moment
    for the jobs of callers that are about to return (``Returns``). Heads draft before the next
    forward, all jobs together. ``quantile`` returns numbers in [0, 1) for what is drawn, also for
    the relative variation of each forward of up to ``jitter``.
    """

    def __init__(
        self,
        clock: Clock,
        law: Law,
        quantile: Callable[[], float],
        max_batch: int = 1,
        *,
        heads: Law | None = None,
        jitter: float = 0.0,
    ) -> None:
        self.alive = True
        self.busy_s = 0.0
        """Time spent in forwards, including those that were cut short."""
        self.on_busy: Callable[[], None] | None = None
        """Called when it has begun or stopped working."""
        self._clock = clock
        self._law = law
        self._heads = heads or law
        self._quantile = quantile
        self._max_batch = max_batch
        self._jitter = jitter
        self._waiting: deque[SimulatedJob] = deque()
        self._between: list[SimulatedJob] = []
        """Jobs that have begun and are not in the current forward."""
        self._batch: list[SimulatedJob] = []
        """Jobs in the current forward."""
        self._size = ForwardShape()
        """The shape of the current forward when it began."""
        self._returns = Returns()
        self._gathering: Timer | None = None
        """Ends the wait of the next forward for jobs that are about to come."""
        self._beginning: Timer | None = None
        """Begins a forward of an idle server, for all jobs that arrive at the same time."""
        self._timer: Timer | None = None
        self._began = self._since = 0.0
        """The time at which the current forward began, and since when it has had its current
        speed."""
        self._left_s = 0.0
        """Time that the forward would take since then at full speed."""
        self._speed = 1.0
        self._was_busy = False
        self._seen: set[int] = set()

    @property
    def num_jobs(self) -> int:
        """Return the number of jobs that wait or run."""
        return len(self._waiting) + len(self._between) + len(self._batch)

    @property
    def is_busy(self) -> bool:
        """Return whether a forward runs."""
        return bool(self._batch)

    def submit(self, job: SimulatedJob) -> None:
        """Queue a job; not to be called by its, or another job's, ``work``."""
        job.server, job.arrived_s = self, self._clock.now
        job.step = job.step or next(job.work, None)
        if job.step is None:
            return
        self._waiting.append(job)
        self._returns.arrived(self._clock.now)
        if not (self._batch or self._beginning):
            self._beginning = self._clock.after(0.0, self._begin)

    def cancel(self, job: SimulatedJob) -> None:
        """Drop a job, waiting or running. Its forward continues for the other jobs in it; without
        any, the server is immediately free for the next one."""
        for place in (self._batch, self._between, self._waiting):
            if job in place:
                place.remove(job)
                if place is self._batch and not place:
                    self._stop()
                    self._forward()
                return

    def die(self) -> None:
        """Lose every job."""
        self.alive = False
        lost = [*self._batch, *self._between, *self._waiting]
        if self._batch:
            self._stop()
        for jobs in (self._batch, self._between, self._waiting):
            jobs.clear()
        self._seen.clear()
        self._tell()
        for job in lost:
            job.lost()

    def work_at(self, speed: float) -> None:
        """Go on at ``speed``, a share of the full one."""
        if speed == self._speed:
            return
        if self._batch:
            assert self._timer is not None
            self._timer.cancelled = True
            self._left_s -= (self._clock.now - self._since) * self._speed
        self._speed = speed
        if self._batch:
            self._run()

    def _forward(self) -> None:
        """Begin a forward: of heads, if any are to draft, or of all jobs that there is room for."""
        heads = [job for job in self._between if job.step and job.step.heads]
        if heads:
            self._batch = heads
            self._between = [job for job in self._between if job.step and not job.step.heads]
        elif not self._gathers():
            self._batch, self._between = self._between, []
            while self._waiting and len(self._batch) < self._max_batch:
                job = self._waiting.popleft()
                job.queue_s = self._clock.now - job.arrived_s
                self._batch.append(job)
        if self._batch:
            self._began = self._clock.now
            self._left_s = self._duration_ms() / 1e3
            self._run()
        self._tell()

    def _gathers(self) -> bool:
        """Return whether the next forward waits for more jobs, as an engine's does."""
        if self._gathering is not None:
            self._gathering.cancelled = True
        num_ready = len(self._between) + len(self._waiting)
        left_s = self._returns.awaited_until(num_ready, self._clock.now) - self._clock.now
        if left_s <= 0 or not 0 < num_ready < self._max_batch:
            return False
        self._gathering = self._clock.after(left_s, self._gathered)
        return True

    def _begin(self) -> None:
        self._beginning = None
        if not self._batch:
            self._forward()

    def _gathered(self) -> None:
        if not self._batch:
            self._forward()

    def _duration_ms(self) -> float:
        jobs = self._batch
        steps = [job.step for job in jobs if job.step is not None]
        law = self._heads if steps[0].heads else self._law
        calls = len(steps)
        size = self._size = ForwardShape(
            calls, sum(each.tokens for each in steps), sum(each.context for each in steps) / calls
        )
        quantile = self._quantile()
        ms = law.ms(size, quantile)
        if law.start_ms and any(each.starts for each in steps):
            ms += law.start_ms
        if law.prompt_ms and any(job.request not in self._seen for job in jobs):
            ms += law.prompt_ms
        return ms * (1 + self._jitter * (2 * quantile - 1))

    def _run(self) -> None:
        self._since = self._clock.now
        delay_s = max(0.0, self._left_s) / self._speed
        self._timer = self._clock.after(delay_s, self._forwarded)

    def _forwarded(self) -> None:
        self.busy_s += self._clock.now - self._began
        ended, self._batch = self._batch, []
        seconds, size = self._clock.now - self._began, self._size
        forward = SharedForward(seconds, int(size.calls), int(size.tokens))
        if not any(job.step and job.step.heads for job in ended):
            self._returns.computed(int(size.tokens), seconds)
        num_answered = 0
        num_lacking = len(ended) + len(self._between) + len(self._waiting) - self._max_batch
        for job in ended:
            if num_lacking > 0 and not job.others_wait:
                job.others_wait = True
                num_lacking -= 1
            job.forward = forward
            self._seen.add(job.request)
            job.step = next(job.work, None)
            if job.step is not None:
                self._between.append(job)
            else:
                num_answered += 1
        self._returns.answered(num_answered, self._clock.now)
        self._forward()

    def _stop(self) -> None:
        assert self._timer is not None
        self._timer.cancelled = True
        self.busy_s += self._clock.now - self._began

    def _tell(self) -> None:
        if self.on_busy is not None and self.is_busy != self._was_busy:
            self._was_busy = self.is_busy
            self.on_busy()
