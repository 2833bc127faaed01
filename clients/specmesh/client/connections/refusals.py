"""Refusals for lack of room, which hold for a moment: under overload most answers are refused, and
each call of them would take the time of an orchestrator that has too much to do. No clock."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from random import Random
from typing import Final

from specmesh.client.errors import SpecmeshError

FULL_S: Final = 0.25
"""Time for which a target that had no room is skipped, and the longest for which it is not asked
again by the same caller."""
_WAIT_MS: Final = "expected_wait_ms"
"""The metadata by which an orchestrator says how long an answer would wait for its turn. Refusals
for another reason, such as too many long texts, say nothing about the next answer."""
_HELD_SHARE: Final = 0.1
"""A refusal holds for at most this share of that wait, so that the answers which do wait keep the
mesh busy meanwhile."""
_JITTER: Final = 0.5
"""The largest share by which the delay of a refusal is lengthened each time it is told again: those
who are told it together should not come back together, nor sooner than they were asked to."""

CallerMetadata = tuple[tuple[str, str | bytes], ...]
"""The metadata of a call, with its token, which say who makes it: each caller has its own share of
the room."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    error: SpecmeshError
    time_left_s: float
    """Time until the deadline of the answer: one with much more might have been let in to wait."""
    ends_at: float


class Refusals:
    """The latest refusals of one target, by caller. Times are in seconds."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._by_caller: dict[CallerMetadata, _Refusal] = {}

    def __len__(self) -> int:
        """Return the number of callers with a refusal that holds, or did a moment ago."""
        return len(self._by_caller)

    def add(
        self, error: SpecmeshError, caller: CallerMetadata, time_left_s: float, now: float
    ) -> None:
        """Record that an answer of ``caller``, ``time_left_s`` before its deadline, was refused."""
        self._forget(now)
        held_s = _held_s(error)
        if held_s <= 0:
            return
        before = self._by_caller.pop(caller, None)  # so that the oldest stay in front
        if before is not None and before.ends_at > now:
            time_left_s = max(time_left_s, before.time_left_s)
        # Without the error's traceback, which would keep the call alive.
        self._by_caller[caller] = _Refusal(copy(error), time_left_s, now + held_s)

    def find(self, caller: CallerMetadata, time_left_s: float, now: float) -> SpecmeshError | None:
        """Return a new error like the one of ``caller`` that holds; None if there is none, or if
        the answer has more time to wait than those that were refused."""
        self._forget(now)
        refusal = self._by_caller.get(caller)
        if refusal is None or refusal.ends_at <= now:
            return None
        if time_left_s > refusal.time_left_s + FULL_S:
            return None
        error = copy(refusal.error)
        error.metadata = dict(error.metadata)
        if error.retry_after_s is not None:
            error.retry_after_s *= self._rng.uniform(1, 1 + _JITTER)
        return error

    def _forget(self, now: float) -> None:
        while self._by_caller:
            oldest = next(iter(self._by_caller))
            if self._by_caller[oldest].ends_at > now:
                return
            del self._by_caller[oldest]


def _held_s(error: SpecmeshError) -> float:
    """Return the time for which a refusal holds; 0 for one that says nothing about others."""
    wait_ms = error.metadata.get(_WAIT_MS, "")
    if not wait_ms.isdecimal():
        return 0.0
    return min(FULL_S, error.retry_after_s or 0.0, _HELD_SHARE * int(wait_ms) / 1e3)
