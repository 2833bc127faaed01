"""Tail sampling: the decision to keep a trace, made when its root has ended. Pure.

All failed and all slow traces are kept, and a share of the rest. One is also kept if none was for
a while, so that a mesh with few requests keeps all of them, however small the share is.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Protocol

_WINDOW = 512
"""Number of recent durations that define which traces are slow."""
_MIN_DURATIONS = 20
"""Fewest durations with which a trace can count as slow."""
_MAX_KINDS = 64
_TRACE_ID_HALF = 2**64


@dataclass(frozen=True, slots=True)
class RootFacts:
    """The facts about a trace's root that decide."""

    kind: str
    """Name of the root and the strategy; only traces of the same kind are compared."""
    duration_ms: float
    failed: bool


class Sampler(Protocol):
    """A sampling policy, called once for each trace."""

    def keeps(self, trace_id: bytes, root: RootFacts, now_s: float) -> bool:
        """Decide whether to keep the trace. ``now_s`` is of any monotonic clock."""
        ...


class KeepAll:
    """The policy that keeps every trace."""

    def keeps(self, trace_id: bytes, root: RootFacts, now_s: float) -> bool:  # noqa: ARG002
        """Return True."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class TailOptions:
    """Options of tail sampling."""

    ratio: float = 0.1
    """Share of the traces that are neither slow nor failed to keep, from 0 to 1."""
    slow_ms: float | None = None
    """Duration from which a trace is slow; None uses ``slow_quantile`` instead."""
    slow_quantile: float = 0.95
    """Share of recent traces of the same kind than which a slow trace is slower."""
    quiet_s: float = 1.0
    """Time without a kept trace after which the next one is kept in any case."""


class TailSampler:
    """The policy that keeps slow and failed traces, and a share of the others."""

    def __init__(self, options: TailOptions) -> None:
        self._options = options
        self._recent: OrderedDict[str, RecentDurations] = OrderedDict()
        self._last_kept_s = float("-inf")

    def keeps(self, trace_id: bytes, root: RootFacts, now_s: float) -> bool:
        """Decide whether to keep the trace. Its id decides whether it is in the share, so several
        collectors agree."""
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
    """The last ``_WINDOW`` durations, ordered by time and by length."""

    def __init__(self) -> None:
        self._by_time: deque[float] = deque()
        self._by_length: list[float] = []

    def add(self, duration_ms: float) -> None:
        """Add a duration, which replaces the oldest if the window is full."""
        if len(self._by_time) == _WINDOW:
            oldest = self._by_time.popleft()
            del self._by_length[bisect_left(self._by_length, oldest)]
        self._by_time.append(duration_ms)
        insort(self._by_length, duration_ms)

    def quantile(self, share: float) -> float | None:
        """Return the duration that ``share`` of them don't exceed; None while there are too few."""
        count = len(self._by_length)
        if count < _MIN_DURATIONS:
            return None
        return self._by_length[min(int(share * count), count - 1)]
