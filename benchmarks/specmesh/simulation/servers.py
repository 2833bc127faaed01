"""Servers on the virtual clock: drafters and replicas of the target, whose work takes time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from specmesh.simulation.clock import Clock, Timer
from specmesh.simulation.latency import Latency


@dataclass(slots=True, eq=False)
class SimulatedJob:
    """Some forwards in a row for one request; ``forwarded`` is called after each of them."""

    request: int
    num_forwards: int
    forwarded: Callable[[], None]
    lost: Callable[[], None]
    """Called if the server dies before the job is done."""
    num_nodes: int = 1
    """Of the tree that each forward has, root included."""
    num_done: int = 0


class SimulatedServer:
    """Works on one job at a time, first come first served, as an engine does.

    ``luck`` gives numbers in [0, 1) for latencies that are drawn.
    """

    def __init__(self, clock: Clock, latency: Latency, luck: Callable[[], float]) -> None:
        self.alive = True
        self.busy_s = 0.0
        """Time spent in forwards, also those that were cut short."""
        self._clock = clock
        self._latency = latency
        self._luck = luck
        self._waiting: deque[SimulatedJob] = deque()
        self._running: SimulatedJob | None = None
        self._timer: Timer | None = None
        self._began = 0.0
        self._seen: set[int] = set()

    @property
    def num_jobs(self) -> int:
        """How many jobs wait or run."""
        return len(self._waiting) + (self._running is not None)

    def submit(self, job: SimulatedJob) -> None:
        """Queue a job."""
        self._waiting.append(job)
        if self._running is None:
            self._next()

    def cancel(self, job: SimulatedJob) -> None:
        """Drop a job, waiting or running; the server is free for the next at once."""
        if job is self._running:
            self._stop()
            self._next()
        elif job in self._waiting:
            self._waiting.remove(job)

    def die(self) -> None:
        """Lose every job."""
        self.alive = False
        lost = list(self._waiting)
        self._waiting.clear()
        if self._running is not None:
            lost.insert(0, self._running)
            self._stop()
        self._seen.clear()
        for job in lost:
            job.lost()

    def _next(self) -> None:
        if self._waiting:
            self._running = self._waiting.popleft()
            self._forward(self._running)

    def _forward(self, job: SimulatedJob) -> None:
        first = job.request not in self._seen
        self._began = self._clock.now
        delay_s = self._latency.forward_s(first=first, luck=self._luck(), num_nodes=job.num_nodes)
        self._timer = self._clock.after(delay_s, self._forwarded)

    def _forwarded(self) -> None:
        job = self._running
        assert job is not None
        self.busy_s += self._clock.now - self._began
        self._seen.add(job.request)
        job.num_done += 1
        if job.num_done < job.num_forwards:
            self._forward(job)
            job.forwarded()
        else:
            self._running = None
            job.forwarded()
            if self._running is None:
                self._next()

    def _stop(self) -> None:
        assert self._timer is not None
        self._timer.cancelled = True
        self.busy_s += self._clock.now - self._began
        self._running = None
