"""Tail sampling: whether a trace is kept, decided once its root has ended. Pure.

Kept are all that failed, all that were slow, a share of the rest, and one now and then however
small that share is, so that a mesh that answers seldom shows each answer.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Protocol

_WINDOW = 512
"""Durations that the slowest are told by."""
_MIN_DURATIONS = 20
"""With fewer nothing is known to be slow."""
_MAX_KINDS = 64
_TRACE_ID_HALF = 2**64


@dataclass(frozen=True, slots=True)
class RootFacts:
    """What the decision goes by."""

    kind: str
    """Name of the root and the strategy: only what is alike is compared."""
    duration_ms: float
    failed: bool


class Sampler(Protocol):
    """Decides about each trace once."""

    def keeps(self, trace_id: bytes, root: RootFacts, now_s: float) -> bool:
        """Whether the trace is kept. ``now_s`` is of any clock that never goes back."""
        ...


class KeepAll:
    """Keeps every trace."""

    def keeps(self, trace_id: bytes, root: RootFacts, now_s: float) -> bool:  # noqa: ARG002
        """Always."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TailOptions:
    """``ratio`` of the traces that are neither slow nor failed, from 0 to 1."""

    ratio: float = 0.1
    slow_ms: float | None = None
    """From which duration on a trace is slow; None leaves it to ``slow_quantile``."""
    slow_quantile: float = 0.95
    """The share of recent traces of the same kind that a slow one is slower than."""
    quiet_s: float = 1.0
    """A trace is kept anyway if none was for so long."""


class TailSampler:
    """Keeps a part, and what is worth looking at."""

    def __init__(self, options: TailOptions) -> None:
        self._options = options
        self._recent: OrderedDict[str, RecentDurations] = OrderedDict()
        self._last_kept_s = float("-inf")

    def keeps(self, trace_id: bytes, root: RootFacts, now_s: float) -> bool:
        """Whether the trace is kept. By its id, a trace is in the share or not wherever one asks:
        several collectors agree."""
        options = self._options
        slow = self._is_slow(root)
        drawn = int.from_bytes(trace_id[8:]) < options.ratio * _TRACE_ID_HALF
        quiet = now_s - self._last_kept_s >= options.quiet_s
        kept = root.failed or slow or drawn or quiet
        if kept:
            self._last_kept_s = now_s
        return kept

    def _is_slow(self, root: RootFacts) -> bool:
        if self._options.slow_ms is not None:
            return root.duration_ms >= self._options.slow_ms
        recent = self._recent.setdefault(root.kind, RecentDurations())
        self._recent.move_to_end(root.kind)
        if len(self._recent) > _MAX_KINDS:
            self._recent.popitem(last=False)
        limit_ms = recent.quantile(self._options.slow_quantile)
        recent.add(root.duration_ms)
        return limit_ms is not None and root.duration_ms > limit_ms


class RecentDurations:
    """The last ``_WINDOW`` durations, in order of time and of length."""

    def __init__(self) -> None:
        self._by_time: deque[float] = deque()
        self._by_length: list[float] = []

    def add(self, duration_ms: float) -> None:
        """Take one in; the oldest goes if there are too many."""
        if len(self._by_time) == _WINDOW:
            oldest = self._by_time.popleft()
            del self._by_length[bisect_left(self._by_length, oldest)]
        self._by_time.append(duration_ms)
        insort(self._by_length, duration_ms)

    def quantile(self, share: float) -> float | None:
        """The duration that ``share`` of them do not exceed; None while there are too few."""
        count = len(self._by_length)
        if count < _MIN_DURATIONS:
            return None
        return self._by_length[min(int(share * count), count - 1)]
