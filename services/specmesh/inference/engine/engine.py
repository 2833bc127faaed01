"""The thread that runs the forward passes; the asyncio server feeds it.

A forward pass blocks, so it must not run on the event loop; and two concurrent passes would only
compete for the same cores. So calls share passes: jobs join and leave between two forward passes,
and each pass serves all running jobs (continuous batching, Yu et al., "Orca", OSDI 2022). Where it
pays, a pass waits a moment for the calls that the last one answered (``predict/returns.py``). A
cancelled job is ended between two forward passes, or within one that no other job needs; its call
ends once the job has stopped.

A forward pass that fails is run again for each of its jobs alone, so that only the jobs that cause
the failure fail. If the thread itself dies, the engine is broken for good, and ``broken`` returns
the reason.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, TypeVar

from specmesh.inference.engine.admission_queue import AdmissionQueue
from specmesh.inference.engine.blocks.pool import BlockPool
from specmesh.inference.engine.blocks.rereads import Rereads
from specmesh.inference.engine.choice import find_own
from specmesh.inference.engine.doorbell import Doorbell
from specmesh.inference.engine.job import End, Job, Work, deliver
from specmesh.inference.engine.pulse import LOOK_SECONDS, Pulse
from specmesh.inference.model import (
    ComputesElsewhere,
    DeviceLost,
    Interrupted,
    LanguageModel,
    Logits,
    SequenceState,
)
from specmesh.serving.errors import ResourceExhaustedStatus, UnavailableStatus

log = logging.getLogger(__name__)

T = TypeVar("T")


class Engine:
    """Runs jobs on the model that ``load`` returns, started in the order of ``AdmissionQueue``.

    ``load`` runs on the engine's thread. ``stream`` and ``run`` raise ``ResourceExhaustedStatus``
    immediately if ``max_queue`` jobs are already waiting. Invariant: once the model is loaded every
    job ends, even if the thread dies or hangs. The thread counts as hanging when a forward pass
    lasts longer than ``longest_s`` (None: longer than a minute and than 50 times the longest pass
    before).
    """

    def __init__(
        self, load: Callable[[], LanguageModel], max_queue: int, longest_s: float | None = None
    ) -> None:
        self._loaded: Future[LanguageModel] = Future()
        self._loaded.set_running_or_notify_cancel()  # a waiter that gives up cannot cancel it
        self._waiting = AdmissionQueue()
        self._rereads = Rereads()
        self._worked_s = self._reread_at_s = 0.0
        """The ends of the latest forward pass, and of the latest one that began to compute a prefix
        again."""
        self._num_rereads = 0
        """The prefixes that had begun to be computed again by then."""
        self._lock = threading.Lock()
        # Wakes the thread when it is idle; its work is in ``_waiting`` and ``_stopping``.
        self._doorbell = Doorbell()
        self._stopping = False
        self.is_broken = False
        """True once the thread has died or hangs: no job will be answered any more. A plain flag,
        since every step reads it, and ``Future.done`` takes a lock."""
        self._broken: Future[str] = Future()
        """The reason, once it is broken."""
        self._broken.set_running_or_notify_cancel()
        self._running: list[Job[Any]] = []
        self._lacks_room = False
        """True if jobs were left waiting when the latest forward pass began."""
        self._pulse = Pulse(longest_s)
        self.max_queue = max_queue
        self._thread = threading.Thread(target=self._live, args=(load,), name="engine", daemon=True)
        self._thread.start()

    async def ready(self) -> LanguageModel:
        """Return the model, once it is loaded; raises what ``load`` raised."""
        return await asyncio.wrap_future(self._loaded)

    @property
    def is_loading(self) -> bool:
        """True while the model is being loaded."""
        return not self._loaded.done()

    @property
    def queue_depth(self) -> int:
        """The number of jobs that wait to be started."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """The number of jobs that share the next forward pass."""
        return len(self._running)

    async def broken(self) -> str:
        """Return the reason, once it ``is_broken``; its jobs have failed by then."""
        died = asyncio.wrap_future(self._broken)
        while not (await asyncio.wait({died}, timeout=LOOK_SECONDS))[0]:
            if self._pulse.has_stopped():
                self._break("a forward pass does not end")
        return await died

    async def stream(self, work: Work[T]) -> AsyncGenerator[T, None]:
        """Run ``work`` and yield its items.

        Closing the iterator cancels the job, and returns once the job has stopped, which is
        immediately if it had not been started.
        """
        job = self._enqueue(work)
        try:
            while not isinstance(item := await job.next(), End):
                yield item
        finally:
            if not job.drain():
                await self._leave(job)

    async def run(self, work: Work[T]) -> T:
        """Run ``work`` and return its one item; an error after that item is logged."""
        job = self._enqueue(work)
        try:
            item = await job.next()
        finally:
            if not job.drain():
                await self._leave(job)
        assert not isinstance(item, End), "no item"
        return item

    def stop(self) -> None:
        """End the thread after the jobs that are already queued; cancelled ones do not run.

        Does not wait for a broken thread, since it may hang, nor for one that is still loading the
        model, since loading cannot be interrupted.
        """
        with self._lock:
            self._stopping = True
        self._doorbell.wake()
        if not self.is_broken and not self.is_loading:
            self._thread.join()

    def _enqueue(self, work: Work[T]) -> Job[T]:
        if self.queue_depth >= self.max_queue:
            raise ResourceExhaustedStatus(
                "QUEUE_FULL", f"{self.max_queue} calls are already waiting", retry_after_s=0.05
            )
        job = Job(work)
        with self._lock:
            if self.is_broken:
                raise _engine_broken()
            if self._stopping:
                raise UnavailableStatus("DRAINING", "this replica is shutting down")
            self._waiting.append(job)
        self._doorbell.arrived(job.cancellation.arrived_s)
        return job

    async def _leave(self, job: Job[Any]) -> None:
        """Cancel ``job`` and return once it is neither queued nor running."""
        job.cancel()
        if not self._waiting.remove(job):
            await job.stopped()

    # On the thread.

    def _live(self, load: Callable[[], LanguageModel]) -> None:
        try:
            model = load()
        except BaseException as error:  # ``ready`` raises it
            self._loaded.set_exception(error)
            return
        if isinstance(model, ComputesElsewhere):
            model.on_failure(self._break)
        self._loaded.set_result(model)
        try:
            if isinstance(model.pool, BlockPool):
                model.pool.rereads = self._rereads
            while not self.is_broken and (self._running or self._awaits_job()):
                self._step(model)
        except BaseException as error:
            log.exception("engine broke")
            self._break(f"the engine's thread died: {error!r}")
        if isinstance(model, ComputesElsewhere) and not self.is_broken:
            model.close()

    def _step(self, model: LanguageModel) -> None:
        self._pulse.beat()
        running = self._running
        self._gather(model.max_batch)
        running[:] = [job for job in running if not job.ended_if_cancelled()]
        if len(running) < model.max_batch:
            self._rereads.look_again()
        self._waiting.admit(running, model.max_batch)
        self._lacks_room = len(self._waiting) > 0
        if running:
            running[:] = self._forward(model, running)
            self._worked_s = time.perf_counter()
            self._take_turns()
        elif self._waiting:
            self._await_caller()

    def _await_caller(self) -> None:
        """Wait for a call that need not compute its prefix again. If none comes in time, let one
        that must go on: nobody needs the blocks that it evicts. Only time without work counts,
        since while a prefix is computed its caller cannot call."""
        left_s = self._worked_s + self._rereads.patience_s - time.perf_counter()
        if left_s > 0:
            self._doorbell.nap(left_s)
        else:
            self._rereads.hurry()

    def _take_turns(self) -> None:
        """Let the next prefix be computed again if the last one was a while ago: whoever else
        works, its caller does not wait for long."""
        if self._rereads.num_rereads > self._num_rereads:
            self._num_rereads, self._reread_at_s = self._rereads.num_rereads, self._worked_s
        elif self._waiting and self._worked_s - self._reread_at_s >= self._rereads.turn_s:
            self._rereads.hurry()

    def _forward(self, model: LanguageModel, running: list[Job[Any]]) -> list[Job[Any]]:
        """Run one forward pass for all of ``running``; return the jobs that want another."""
        reading = [job.request.sequence for job in running if job.is_prefilling]
        num_before = _num_computed(reading)
        began_s = time.perf_counter()
        results = _results(model, running)
        if not isinstance(results, BaseException):
            forward_s = time.perf_counter() - began_s
            self._rereads.computed(_num_computed(reading) - num_before, forward_s)
            self._make_room(running, model.max_batch)
            left = [job for job, each in zip(running, results, strict=True) if job.go_on(each)]
            self._doorbell.hear()  # the calls that have come by now are no replies
            answered_s = time.perf_counter()
            # Only now, so that the event loop does not compete with the jobs for the interpreter.
            deliver(running)
            self._doorbell.forward_ended(_num_rows(results), forward_s)
            self._doorbell.answered(len(running) - len(left), answered_s)
            return left
        if len(running) == 1 or isinstance(results, Interrupted):
            return [job for job in running if job.throw(results)]
        log.warning(
            "forward pass failed; its jobs now run one by one", extra={"error": repr(results)}
        )
        del results  # frees what the failed forward pass held in memory
        return self._apart(model, running)

    def _make_room(self, running: list[Job[Any]], max_batch: int) -> None:
        """Tell as many running jobs as others wait for room that they do, those first that have run
        for longest: whoever need not go on then makes way."""
        num_waiting = len(self._waiting)
        if not self._lacks_room:
            num_waiting += len(running) - max_batch
        untold = (job for job in running if not job.others_wait)
        for job in islice(untold, max(0, num_waiting)):
            job.others_wait = True

    def _apart(self, model: LanguageModel, running: list[Job[Any]]) -> list[Job[Any]]:
        """Run a forward pass for each job alone, after one for all has failed."""
        following = []
        for job in running:
            if job.ended_if_cancelled():
                continue
            self._pulse.beat()
            following += self._forward(model, [job])
        return following

    def _break(self, reason: str) -> None:
        """Fail all jobs and accept no more. Called by the thread as it dies, by ``broken``, or by
        the model."""
        with self._lock:
            if self.is_broken:
                return
            self.is_broken = True
            self._broken.set_result(reason)
            lost = [*self._running, *self._waiting.clear()]
        for job in lost:
            job.fail(_engine_broken())
        self._doorbell.wake()  # a thread without jobs ends

    def _awaits_job(self) -> bool:
        """Block until a job waits; False if there will be none."""
        while not self._waiting:
            if self._stopping or self.is_broken:
                return False
            self._pulse.rest()
            self._doorbell.sleep()
        return True

    def _gather(self, max_batch: int) -> None:
        """Wait for the callers that are about to return, while there is room for them."""
        while (num_ready := len(self._running) + len(self._waiting)) < max_batch:
            if not self._doorbell.waited_for_another(num_ready):
                return


def _results(model: LanguageModel, running: list[Job[Any]]) -> list[Logits | None] | BaseException:
    """Return the logits of a forward pass for all of ``running``, or the error it raised."""
    requests = [job.request for job in running]
    try:
        results = model.forward(requests)
        find_own(requests, results)
    except DeviceLost:
        raise
    except BaseException as error:
        return error
    return results


def _num_computed(sequences: Sequence[SequenceState]) -> int:
    return sum(each.num_computed_tokens for each in sequences)


def _num_rows(results: list[Logits | None]) -> int | None:
    """Return the rows of logits of a forward pass; None if some jobs must wait for theirs."""
    num_rows = 0
    for rows in results:
        if rows is None:
            return None
        num_rows += len(rows)
    return num_rows


def _engine_broken() -> UnavailableStatus:
    return UnavailableStatus("ENGINE_BROKEN", "this replica cannot compute any more")
