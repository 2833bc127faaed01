"""The decision when to release requests that wait for the target: pure, without a clock.

Waiting pays only if more requests arrive meanwhile, and they only come from active sessions. So a
batch is released at the latest when its oldest request is due, and before that once it is full or
every session that was recently active is waiting.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LIVE_S = 1.0
"""A session seen within this time is active. A round of draft and verification takes less, even
with many sessions on few replicas, and an ended session delays others no longer than this."""

WAIT_SHARE = 0.5
"""The longest wait of a request, as a share of its verification's time. While the target is idle it
answers soon, and waiting would take most of the time of a token; the busier it is, the more a
larger batch saves, and the less waiting adds."""


def wait_s(window_s: float, verification_s: float) -> float:
    """Return the seconds that a request may wait for others; ``verification_s`` is 0 if unknown."""
    return min(window_s, WAIT_SHARE * verification_s) if verification_s else window_s


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request to verify that waits until ``due``, in seconds of the caller's clock."""

    number: int
    """The number of the request, in order of arrival."""
    session_id: str
    confidence: float
    """The score of the first token that was not kept; scores of different scorers are compared
    directly."""
    due: float


def next_batch(
    waiting: Iterable[WaitingRequest], sessions: Iterable[str], now: float, max_batch: int
) -> list[WaitingRequest]:
    """Return the requests to release at ``now``, the least confident first; none if they keep
    waiting.

    ``sessions`` are the active sessions. More than ``max_batch`` requests may wait: call again for
    the rest.
    """
    order = sorted(waiting, key=lambda each: (each.confidence, each.number))
    if not order:
        return []
    full = len(order) >= max_batch
    due = min(each.due for each in order) <= now
    # A session may have two waiting requests, or have been forgotten while one waits.
    if full or due or set(sessions) <= {each.session_id for each in order}:
        return order[:max_batch]
    return []


class ActiveSessions:
    """The sessions seen within ``LIVE_S``.

    Other sessions are dropped whenever one is seen, not only when a batch is released: if every
    token is kept, no batch ever is.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, float] = OrderedDict()

    def see(self, session_id: str, now: float) -> None:
        """Record that the session is active."""
        self._seen[session_id] = now
        self._seen.move_to_end(session_id)
        self._forget(now)

    def ids(self, now: float) -> list[str]:
        """Return the sessions that are active at ``now``."""
        self._forget(now)
        return list(self._seen)

    def _forget(self, now: float) -> None:
        while self._seen and next(iter(self._seen.values())) <= now - LIVE_S:
            self._seen.popitem(last=False)


class WaitingRequests:
    """Requests that wait together; each is released exactly once, at the latest when it is due."""

    def __init__(self, max_batch: int) -> None:
        self._max_batch = max_batch
        self._waiting: dict[int, WaitingRequest] = {}
        self._sessions = ActiveSessions()

    @property
    def due(self) -> float | None:
        """The time at which the oldest request is due; None if no request waits."""
        return min((each.due for each in self._waiting.values()), default=None)

    def see(self, session_id: str, now: float) -> None:
        """Record that the session is active."""
        self._sessions.see(session_id, now)

    def add(self, waiting: WaitingRequest) -> None:
        """Add a request that waits."""
        self._waiting[waiting.number] = waiting

    def withdraw(self, number: int) -> None:
        """Remove a request, if it waits."""
        self._waiting.pop(number, None)

    def release(self, now: float) -> list[Sequence[WaitingRequest]]:
        """Remove and return the batches to release at ``now``."""
        sessions = self._sessions.ids(now)
        batches: list[Sequence[WaitingRequest]] = []
        while batch := next_batch(self._waiting.values(), sessions, now, self._max_batch):
            batches.append(batch)
            for each in batch:
                del self._waiting[each.number]
        return batches
