"""The jobs that wait to be started, and the order in which they start.

Jobs start in order of arrival. One that finds no room for its KV does not hold up those behind it:
they may overtake it while there is room for them. But whoever takes room keeps it from the one that
waits, so that small jobs could keep a large one waiting for ever. Therefore at most
``MAX_OVERTAKES`` jobs overtake a job. After that, room is reserved for it: nothing behind it is
started before it is. It follows that

- every job starts or is refused: running jobs end, and nothing is started before a job that has
  been overtaken so often. A job that finds no room although nothing runs is refused;
- a job for which there is room waits only for its place in a forward pass, or, while room is
  reserved for a job before it, until jobs that run by then have ended.

A long prefix keeps its place for many forward passes, of which few compute a part of it. So at most
half of the places are for jobs that compute one. A job that would be another waits for one of these
to be done, whoever overtakes it meanwhile: it holds no room, and those before it get on. So does a
job whose prefix was evicted a moment ago, until it may be computed again (``blocks/rereads.py``).
"""

from __future__ import annotations

import threading
from bisect import insort
from dataclasses import dataclass
from itertools import count
from typing import Any

from specmesh.inference.engine.blocks.pool import NoRoom
from specmesh.inference.engine.blocks.rereads import RereadLater
from specmesh.inference.engine.job import Job, NoPlace
from specmesh.serving.errors import ResourceExhaustedStatus

MAX_OVERTAKES = 64
"""Most jobs that overtake a job without room: as many as share one forward pass."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """A job that waits, numbered in order of arrival."""

    job: Job[Any]
    number: int
    stalled: bool = False
    """The job has found no room, and is not tried again before room may have been returned."""
    lacks_place: bool = False
    """The job has a long prefix, and is not tried again before another one is computed."""
    rereads: bool = False
    """The job's prefix was evicted a moment ago. Of those, only the first is tried at a time."""
    num_overtaken: int = 0
    """Jobs behind it that were started before it."""


class AdmissionQueue:
    """Jobs in order of arrival; see the module's docstring. One thread calls ``admit``; any thread
    may call the other methods."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()
        self._numbers = count()
        self._num_running = 0
        """The number of running jobs after the latest ``admit``."""

    def __len__(self) -> int:
        return len(self._waiting)

    def append(self, job: Job[Any]) -> None:
        """Add a job that has arrived."""
        with self._lock:
            self._waiting.append(_Waiting(job, next(self._numbers)))

    def remove(self, job: Job[Any]) -> bool:
        """Remove ``job`` and return whether it was waiting."""
        with self._lock:
            for index, waiting in enumerate(self._waiting):
                if waiting.job is job:
                    del self._waiting[index]
                    return True
        return False

    def clear(self) -> list[Job[Any]]:
        """Remove and return all jobs."""
        with self._lock:
            jobs = [waiting.job for waiting in self._waiting]
            self._waiting.clear()
        return jobs

    def admit(self, running: list[Job[Any]], max_batch: int) -> None:
        """Start waiting jobs while there is room for them, and append them to ``running``, from
        which only jobs that have ended may have been removed since the last call."""
        self._reconsider(everyone=len(running) < self._num_running)
        places = max(1, max_batch // 2) - sum(job.is_prefilling for job in running)
        may_reread = True
        while len(running) < max_batch and (waiting := self._take(places > 0, may_reread)):
            job = waiting.job
            if job.ended_if_cancelled():
                continue
            running.append(job)  # now, so that it fails if starting it kills the thread
            job.may_prefill = places > 0
            try:
                if job.start():
                    places -= job.is_prefilling
                    self._count_overtakes(waiting)
                else:
                    running.pop()
            except NoPlace:
                waiting.lacks_place = True
                self._put_back(waiting)
                running.pop()
            except RereadLater:
                may_reread, waiting.rereads = False, True
                self._put_back(waiting)
                running.pop()
            except NoRoom as error:
                if len(running) == 1:  # no other job will release blocks
                    job.fail(
                        ResourceExhaustedStatus("KV_CACHE_FULL", str(error), retry_after_s=0.05)
                    )
                else:
                    waiting.stalled, waiting.lacks_place = True, False
                    self._put_back(waiting)
                running.pop()
        self._num_running = len(running)

    def _reconsider(self, *, everyone: bool) -> None:
        """Let ``everyone`` be tried again, or only the first: a prefix that has been computed in
        the meantime may be shared, but to try all jobs before each forward pass takes time."""
        with self._lock:
            for waiting in self._waiting if everyone else self._waiting[:1]:
                waiting.stalled = False

    def _take(self, may_prefill: bool, may_reread: bool) -> _Waiting | None:
        """Remove and return the next job to try; None if none may be started now."""
        with self._lock:
            for index, waiting in enumerate(self._waiting):
                must_wait = waiting.stalled or (waiting.lacks_place and not may_prefill)
                must_wait |= waiting.rereads and not may_reread
                if not must_wait or waiting.job.cancellation.is_set():
                    return self._waiting.pop(index)
                if waiting.stalled and waiting.num_overtaken >= MAX_OVERTAKES:
                    return None
        return None

    def _put_back(self, waiting: _Waiting) -> None:
        with self._lock:
            insort(self._waiting, waiting, key=lambda each: each.number)

    def _count_overtakes(self, started: _Waiting) -> None:
        with self._lock:
            for waiting in self._waiting:
                if waiting.number > started.number:
                    return
                waiting.num_overtaken += not waiting.lacks_place
