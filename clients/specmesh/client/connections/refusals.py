"""Refusals for lack of room, which hold for a moment: under overload most answers are refused, and
each call of them would take the time of an orchestrator that has too much to do. No clock."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from specmesh.client.errors import SpecmeshError

FULL_S = 0.25
"""Time for which a target that had no room is skipped, and not asked again by the same caller. It
is short beside the seconds of waiting that an orchestrator grants before it refuses."""

Caller = tuple[tuple[str, str | bytes], ...]
"""The metadata of a call, which say who makes it: each caller has its own share of the room."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    error: SpecmeshError
    time_left_s: float
    """Time until the deadline of the answer: one with much more might have been let in to wait."""
    ends_at: float


class Refusals:
    """The latest refusals of one target, by caller. Times are in seconds."""

    def __init__(self) -> None:
        self._by_caller: dict[Caller, _Refusal] = {}

    def add(self, error: SpecmeshError, caller: Caller, time_left_s: float, now: float) -> None:
        """Record that an answer of ``caller``, ``time_left_s`` before its deadline, was refused."""
        self._by_caller.pop(caller, None)  # so that the oldest stay in front
        self._forget(now)
        held_s = min(FULL_S, error.retry_after_s or 0.0)
        # Without the error's traceback, which would keep the call alive.
        self._by_caller[caller] = _Refusal(copy(error), time_left_s, now + held_s)

    def _forget(self, now: float) -> None:
        while self._by_caller:
            oldest = next(iter(self._by_caller))
            if self._by_caller[oldest].ends_at > now:
                return
            del self._by_caller[oldest]

    def find(self, caller: Caller, time_left_s: float, now: float) -> SpecmeshError | None:
        """Return a new error like the one by which such an answer was refused within the last
        `FULL_S`, and within the delay that it asked for; None if there was none."""
        refusal = self._by_caller.get(caller)
        if refusal is None or refusal.ends_at <= now:
            return None
        if time_left_s > refusal.time_left_s + FULL_S:
            return None
        return copy(refusal.error)
