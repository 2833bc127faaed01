"""One call's work on the engine: a generator that requests forward passes and yields results.

It yields either a ``ForwardRequest``, and is sent the logits once they are computed, or an item,
which goes to the caller immediately. So a job never blocks, and one forward pass can serve many
jobs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.inference.engine.blocks.pool import BlockPool, NoRoom, TooLarge
from specmesh.inference.engine.blocks.rereads import RereadLater
from specmesh.inference.model import (
    Cancellation,
    ForwardRequest,
    LanguageModel,
    Logits,
    SequenceState,
)
from specmesh.serving.errors import FailedPreconditionStatus, ResourceExhaustedStatus

log = logging.getLogger(__name__)

T = TypeVar("T")

Steps = Generator[ForwardRequest | T, Logits, None]
Deliveries = list[tuple["Job[Any]", list[Any]]]
"""Items for the callers of jobs."""
Work = Callable[["Job[T]"], Steps[T]]


@dataclass(frozen=True, slots=True)
class End:
    """The last item of a job, with the error that it raised, if any."""

    error: BaseException | None = None


class NoPlace(Exception):
    """No more long prefixes may be computed at the moment: start the job again later."""


class Job(Generic[T]):
    """A call's work, created on the event loop and run step by step on the engine's thread.

    Invariant: however a job ends, it sends its caller an ``End`` after its items.
    """

    def __init__(self, work: Work[T]) -> None:
        self._work = work
        self.loop = asyncio.get_running_loop()
        """The event loop on which the caller waits."""
        # A queue with one reader, which is woken once for all items that have arrived.
        self._items: deque[T | End] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._ended = False
        self._steps: Steps[T] | None = None
        self.outgoing: list[T | End] = []
        """Items that wait for ``deliver``."""
        self.cancellation = Cancellation()
        self.queue_ms = 0.0
        """The time in ms that the job waited for its first step."""
        self.may_prefill = True
        """False while as many others as may compute long prefixes."""
        self.others_wait = False
        """True once another job waits for this one's room: if it need not go on, it makes way."""

    # On the event loop.

    def cancel(self) -> None:
        """Ask the job to stop; items that it yields from now on are dropped."""
        self.cancellation.set()

    async def next(self) -> T | End:
        """Return the next item or the end; raises what the job raised."""
        while not self._items:
            await self._arrived()
        item = self._items.popleft()
        if isinstance(item, End):
            self._ended = True
            if item.error is not None:
                raise item.error
        return item

    def drain(self) -> bool:
        """Drop the items that have arrived; return whether the job is known to have left the
        engine's thread."""
        while self._items and not self._ended:
            item = self._items.popleft()
            if isinstance(item, End):
                self._ended = True
                if item.error is not None:  # no caller is left to raise it
                    log.error("job failed after its caller had left", exc_info=item.error)
        return self._ended

    async def stopped(self) -> None:
        """Return once the started job has left the engine's thread.

        Cancelling the caller does not end the wait: returning earlier would claim that the engine
        is free while it is not.
        """
        cancelled: asyncio.CancelledError | None = None
        while not self.drain():
            try:
                await self._arrived()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def _arrived(self) -> asyncio.Future[None]:
        """Return what is done once there are further items."""
        self._arrival = self.loop.create_future()
        return self._arrival

    def receive(self, items: list[T | End]) -> None:
        """Take in items from the engine's thread."""
        self._items += items
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    # On the engine's thread.

    def start(self) -> bool:
        """Run to the first request; False if the job ended before. After ``NoRoom``, ``NoPlace`` or
        ``RereadLater``, start it again later."""
        self.queue_ms = (time.perf_counter() - self.cancellation.arrived_s) * 1e3
        self._steps = steps = self._work(self)
        goes_on = self._proceed(next, steps, passes=(NoRoom, NoPlace, RereadLater))
        deliver([self])
        return goes_on

    def go_on(self, logits: Logits | None) -> bool:
        """Run from the answered request to the next, or wait on if ``logits`` are None; False if
        the job ended before, or is cancelled. Its items wait for ``deliver``."""
        if self.ended_if_cancelled():
            return False
        if logits is None:
            return True
        assert self._steps is not None
        return self._proceed(self._steps.send, logits)

    def throw(self, error: BaseException) -> bool:
        """Raise ``error`` where the job waits for logits; False if it makes no further request, or
        is cancelled."""
        if self.ended_if_cancelled():
            return False
        assert self._steps is not None
        goes_on = self._proceed(self._steps.throw, error)
        deliver([self])
        return goes_on

    def fail(self, error: BaseException) -> None:
        """Tell the caller that the job failed with ``error``."""
        _send([(self, [End(error)])])

    def ended_if_cancelled(self) -> bool:
        """End the job at its current step if it is cancelled; return whether it is."""
        if not self.cancellation.is_set():
            return False
        _send([(self, [self._closed()])])
        return True

    @property
    def request(self) -> ForwardRequest:
        """The forward pass that the job waits for."""
        return self._request

    @property
    def is_prefilling(self) -> bool:
        """True while the job's prefix takes forward passes that it shares with other prefixes."""
        return _is_long(self._request.sequence)

    def open(self, model: LanguageModel, prefix: Sequence[int], room: int) -> SequenceState:
        """Open a sequence of ``model`` as ``LanguageModel.open`` does. Raises ``NoPlace``, and
        takes no room, if its prefix is long and must wait for others."""
        pool = model.pool
        if not self.may_prefill and isinstance(pool, BlockPool):
            prefix = prefix if isinstance(prefix, PrefixChain) else PrefixChain(prefix)
            if pool.num_missing(prefix) > BLOCK_TOKENS:
                raise NoPlace
        sequence = model.open(prefix, self.cancellation, room)
        if self.may_prefill or not _is_long(sequence):
            return sequence
        sequence.close([])
        raise NoPlace

    def _proceed(
        self,
        step: Callable[..., ForwardRequest | T],
        *arguments: Any,
        passes: tuple[type[Exception], ...] = (),
    ) -> bool:
        """Run from ``step`` to the next request. Errors go to the caller, except for those in
        ``passes``.

        All items before that request are delivered together: waking the caller twice would take
        longer than computing the next item.
        """
        items = self.outgoing
        try:
            item = step(*arguments)
            while not self.cancellation.is_set():
                if isinstance(item, ForwardRequest):
                    self._request = item
                    return True
                items.append(item)
                assert self._steps is not None
                item = next(self._steps)
            items.append(self._closed())
        except passes:
            raise
        except StopIteration:
            items.append(End())
        except TooLarge as error:
            items.append(End(_never_fits(error)))
        except MemoryError as error:
            items.append(End(_out_of_memory(error)))
        except BaseException as error:  # the caller decides what to do with it
            items.append(End(error))
        return False

    def _closed(self) -> End:
        try:
            if self._steps is not None:
                self._steps.close()
        except BaseException as error:  # the engine must survive it
            return End(error)
        return End()


def _is_long(sequence: SequenceState) -> bool:
    """Return whether more than a block of the prefix is to be computed, in a model that says so."""
    return getattr(sequence, "num_pending_tokens", 0) > BLOCK_TOKENS


def deliver(jobs: Sequence[Job[Any]]) -> None:
    """Send the callers of ``jobs`` the items that wait for them. They wait on one event loop, which
    is woken once for all of them: that takes longer than to compute the next item."""
    sent = [(job, job.outgoing) for job in jobs if job.outgoing]
    for job, _ in sent:
        job.outgoing = []
    _send(sent)


def _send(items: Deliveries) -> None:
    if not items:
        return
    try:
        items[0][0].loop.call_soon_threadsafe(_receive, items)
    except RuntimeError:  # the loop is closed, so nobody waits any more
        for job, _ in items:
            job.cancel()


def _receive(items: Deliveries) -> None:
    for job, each in items:
        job.receive(each)


def _never_fits(error: TooLarge) -> FailedPreconditionStatus:
    numbers = {
        "num_tokens": str(error.num_tokens),
        "kv_capacity_tokens": str(error.capacity_tokens),
    }
    return FailedPreconditionStatus("KV_CACHE_TOO_SMALL", str(error), numbers)


def _out_of_memory(error: MemoryError) -> ResourceExhaustedStatus:
    """Return an error that can be retried: another replica, or this one later, may have more
    memory."""
    log.error("out of memory for a single job", extra={"error": str(error)})
    return ResourceExhaustedStatus(
        "OUT_OF_MEMORY", "this replica does not have enough memory for this call"
    )
