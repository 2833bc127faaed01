"""Where requests to the target wait for others to be batched with: in Redis, else in this process.

No request waits longer than its window and ``LATE_S``, whatever Redis does: then it is taken back,
with all others of this process, and they wait here instead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from specmesh.confidence.metrics import record_batch, record_fallback, record_wait
from specmesh.confidence.release import Escalation, Gathering, Waiting, wait_s
from specmesh.confidence.request_store import ReleasedPart, RequestStore
from specmesh.confidence.sharing import Sharing
from specmesh.serving.session import StoreUnavailable

log = logging.getLogger(__name__)

LATE_S = 0.025
"""How many seconds after its window a request still waits for Redis."""
RETRY_S = 1.0
"""Seconds between two attempts to reach Redis."""


@dataclass(frozen=True, slots=True)
class Release:
    """Says that the request may be sent to the target now."""

    batch_size: int
    waited_ms: float


class Ticket:
    """A request that waits in the cache; ``released`` is set when it may go."""

    def __init__(self, waiting: Waiting, since: float) -> None:
        self.waiting = waiting
        self.released: asyncio.Future[Release] = asyncio.get_running_loop().create_future()
        self._since = since

    def release(self, batch_size: int, now: float) -> None:
        """Release the request, unless its caller has gone."""
        if not self.released.done():
            waited_ms = (now - self._since) * 1e3
            record_wait(waited_ms)
            self.released.set_result(Release(batch_size, waited_ms))


class RequestCache:
    """Waiting requests of this process and, while Redis is there, of all replicas."""

    def __init__(self, store: RequestStore | None, *, window_s: float, max_batch: int) -> None:
        self._store = store
        self._window_s = window_s
        self._here = Gathering(max_batch)
        self._sharing: Sharing | None = None
        self._tickets: dict[int, Ticket] = {}
        self._numbers = count()
        self._due_timer: asyncio.TimerHandle | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return once Redis has been reached, or found unreachable."""
        if self._store is None:
            log.info("no Redis set: requests wait for those of this process alone")
            return
        tried = asyncio.Event()
        self._keeping = asyncio.create_task(self._keep_sharing(self._store, tried))
        await tried.wait()

    async def stop(self) -> None:
        """Disconnect from Redis, and release all that still wait."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        if self._due_timer is not None:
            self._due_timer.cancel()
        self._release(list(self._tickets), len(self._tickets))
        if self._store is not None:
            await self._store.aclose()

    def see(self, session_id: str) -> None:
        """Note that the session is active, so that others may wait for it."""
        self._here.see(session_id, time.monotonic())
        if self._sharing is not None:
            self._sharing.see(session_id)

    @contextmanager
    def enter(self, escalation: Escalation, verification_s: float = 0.0) -> Iterator[Ticket]:
        """Let a request wait; leaving the block withdraws it.

        ``verification_s`` is how long verifications recently took, 0 if that is not known.
        """
        now = time.monotonic()
        due = now + wait_s(self._window_s, verification_s)
        ticket = Ticket(Waiting(next(self._numbers), escalation, due), now)
        waiting = ticket.waiting
        self._tickets[waiting.number] = ticket
        self.see(escalation.session_id)
        try:
            if self._sharing is None:
                self._wait_here([waiting], "away" if self._store else "unset")
                yield ticket
            else:
                with self._in_redis(self._sharing, waiting):
                    yield ticket
        finally:
            self._here.withdraw(waiting.number)  # it may have been taken back from Redis
            del self._tickets[waiting.number]

    @contextmanager
    def _in_redis(self, sharing: Sharing, waiting: Waiting) -> Iterator[None]:
        sharing.add(waiting)
        late = asyncio.get_running_loop().call_at(
            waiting.due + LATE_S, self._take_back, sharing, "late"
        )
        try:
            yield
        finally:
            late.cancel()
            sharing.withdraw(waiting.number)

    def _wait_here(self, waiting: Sequence[Waiting], cause: str) -> None:
        for each in waiting:
            self._here.add(each)
            record_fallback(cause)
        self._release_here()

    def _release_here(self) -> None:
        """Release what is ready in this process, and come back when the next request is due."""
        for batch in self._here.release(time.monotonic()):
            record_batch(len(batch))
            self._release([each.number for each in batch], len(batch))
        if self._due_timer is not None:
            self._due_timer.cancel()
            self._due_timer = None
        if self._here.due is not None:
            loop = asyncio.get_running_loop()
            self._due_timer = loop.call_at(self._here.due, self._release_here)

    def _release(self, numbers: Sequence[int], batch_size: int) -> None:
        now = time.monotonic()
        for number in numbers:
            if ticket := self._tickets.get(number):
                ticket.release(batch_size, now)

    async def _keep_sharing(self, store: RequestStore, tried: asyncio.Event) -> None:
        away = False
        while True:
            try:
                async with store.join() as membership:
                    log.info("requests wait in Redis, for those of all replicas")
                    away = False
                    self._sharing = Sharing(membership, self._released)
                    tried.set()
                    await self._sharing.run()
            except StoreUnavailable as failure:
                self._lose(failure, told=away)
            except Exception as failure:
                log.exception("the request cache broke")
                self._lose(failure, told=away)
            away = True
            tried.set()
            await asyncio.sleep(RETRY_S)

    def _released(self, part: ReleasedPart) -> None:
        self._release(part.numbers, part.batch_size)

    def _lose(self, failure: Exception, *, told: bool) -> None:
        if not told:
            log.warning(
                "no Redis: requests wait for those of this process alone",
                extra={"reason": str(failure)},
            )
        sharing, self._sharing = self._sharing, None
        if sharing is not None:
            self._take_back(sharing, "away")

    def _take_back(self, sharing: Sharing, cause: str) -> None:
        """Let all requests that wait in Redis wait in this process instead."""
        self._wait_here(sharing.withdraw_all(), cause)
