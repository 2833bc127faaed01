"""The cache in which requests to the target wait to be batched with those of other sessions.

Requests of one process wait together. Replicas of the service share nothing: a verifier batches the
requests of all replicas anyway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from specmesh.confidence.metrics import record_batch, record_wait
from specmesh.confidence.release import WaitingRequest, WaitingRequests, wait_s


@dataclass(frozen=True, slots=True)
class Release:
    """The permission to send the request to the target now."""

    batch_size: int
    waited_ms: float


class Ticket:
    """A request that waits in the cache; ``released`` is set when it may be sent."""

    def __init__(self, since: float) -> None:
        self.released: asyncio.Future[Release] = asyncio.get_running_loop().create_future()
        self._since = since

    def release(self, batch_size: int, now: float) -> None:
        """Release the request, unless its caller has left."""
        if not self.released.done():
            waited_ms = (now - self._since) * 1e3
            record_wait(waited_ms)
            self.released.set_result(Release(batch_size, waited_ms))


class RequestCache:
    """The waiting requests of this process: CALID's request cache."""

    def __init__(self, *, window_s: float, max_batch: int) -> None:
        """Let no request wait longer than ``window_s``."""
        self._window_s = window_s
        self._waiting = WaitingRequests(max_batch)
        self._tickets: dict[int, Ticket] = {}
        self._numbers = count()
        self._due_timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Release all waiting requests."""
        self._set_timer(None)
        self._release(list(self._tickets))

    def see(self, session_id: str) -> None:
        """Record that the session is active, so that others may wait for it."""
        self._waiting.see(session_id, time.monotonic())

    @contextmanager
    def enter(
        self, session_id: str, confidence: float, verification_s: float = 0.0
    ) -> Iterator[Ticket]:
        """Let a request wait; leaving the block withdraws it.

        ``confidence`` is the score of the first token that was not kept; ``verification_s`` is the
        recent time of a verification, 0 if unknown.
        """
        now = time.monotonic()
        due = now + wait_s(self._window_s, verification_s)
        waiting = WaitingRequest(next(self._numbers), session_id, confidence, due)
        ticket = self._tickets[waiting.number] = Ticket(now)
        self._waiting.see(session_id, now)
        self._waiting.add(waiting)
        self._release_ready()
        try:
            yield ticket
        finally:
            self._waiting.withdraw(waiting.number)
            del self._tickets[waiting.number]

    def _release_ready(self) -> None:
        """Release the requests that are ready, and set a timer for the next one that is due."""
        for batch in self._waiting.release(time.monotonic()):
            record_batch(len(batch))
            self._release([each.number for each in batch])
        self._set_timer(self._waiting.due)

    def _set_timer(self, due: float | None) -> None:
        if self._due_timer is not None:
            self._due_timer.cancel()
        self._due_timer = (
            None if due is None else asyncio.get_running_loop().call_at(due, self._release_ready)
        )

    def _release(self, numbers: Sequence[int]) -> None:
        now = time.monotonic()
        for number in numbers:
            self._tickets[number].release(len(numbers), now)
