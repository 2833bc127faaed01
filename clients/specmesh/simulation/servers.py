"""Servers on the virtual clock: drafters and replicas of the target, whose work takes time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from specmesh.simulation.clock import Clock, Timer
from specmesh.simulation.latency import Latency


@dataclass(slots=True, eq=False)
class SimulatedJob:
    """Consecutive forwards for one request; ``forwarded`` is called after each of them."""

    request: int
    num_forwards: int
    forwarded: Callable[[], None]
    lost: Callable[[], None]
    """Called if the server dies before the job is done."""
    num_nodes: int = 1
    """Nodes of the tree of each forward, root included."""
    heads_s: float = 0.0
    """Time in which heads draft after each forward, for all jobs that share it together."""
    num_done: int = 0
    server: SimulatedServer | None = None
    """The server that has it; None before it is sent."""


class SimulatedServer:
    """A server of up to ``max_batch`` concurrent jobs, first come, first served, as in an engine.

    All running jobs share each forward; jobs that arrive meanwhile wait for the next one.
    ``quantile`` returns numbers in [0, 1) for latencies that are drawn.
    """

    def __init__(
        self, clock: Clock, latency: Latency, quantile: Callable[[], float], max_batch: int = 1
    ) -> None:
        self.alive = True
        self.busy_s = 0.0
        """Time spent in forwards, including those that were cut short."""
        self._clock = clock
        self._latency = latency
        self._quantile = quantile
        self._max_batch = max_batch
        self._waiting: deque[SimulatedJob] = deque()
        self._running: list[SimulatedJob] = []
        self._timer: Timer | None = None
        self._began = 0.0
        self._seen: set[int] = set()

    @property
    def num_jobs(self) -> int:
        """Return the number of jobs that wait or run."""
        return len(self._waiting) + len(self._running)

    def submit(self, job: SimulatedJob) -> None:
        """Queue a job."""
        job.server = self
        self._waiting.append(job)
        if not self._running:
            self._forward()

    def cancel(self, job: SimulatedJob) -> None:
        """Drop a job, waiting or running. Its forward continues for the other jobs in it; without
        any, the server is immediately free for the next one."""
        if job in self._running:
            self._running.remove(job)
            if not self._running:
                self._stop()
                self._forward()
        elif job in self._waiting:
            self._waiting.remove(job)

    def die(self) -> None:
        """Lose every job."""
        self.alive = False
        lost = [*self._running, *self._waiting]
        self._waiting.clear()
        if self._running:
            self._running.clear()
            self._stop()
        self._seen.clear()
        for job in lost:
            job.lost()

    def _forward(self) -> None:
        """Begin a forward with the running jobs and, as far as there is room, the waiting ones."""
        running = self._running
        while self._waiting and len(running) < self._max_batch:
            running.append(self._waiting.popleft())
        if not running:
            return
        self._began = self._clock.now
        delay_s = self._latency.forward_s(
            first=any(job.request not in self._seen for job in running),
            quantile=self._quantile(),
            num_nodes=sum(job.num_nodes for job in running),
        )
        delay_s += max(job.heads_s for job in running)
        self._timer = self._clock.after(delay_s, self._forwarded)

    def _forwarded(self) -> None:
        self.busy_s += self._clock.now - self._began
        ended, self._running = self._running, []
        for job in ended:
            self._seen.add(job.request)
            job.num_done += 1
            if job.num_done < job.num_forwards:
                self._running.append(job)
        if self._running:
            self._forward()
        for job in ended:
            job.forwarded()
        if not self._running:
            self._forward()

    def _stop(self) -> None:
        assert self._timer is not None
        self._timer.cancelled = True
        self.busy_s += self._clock.now - self._began
