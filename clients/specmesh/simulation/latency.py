"""Latencies of forwards: fixed, with a different first one, or drawn from measurements."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol


class Latency(Protocol):
    """A latency of forwards."""

    def forward_s(self, *, first: bool, quantile: float, num_nodes: int) -> float:
        """Return the seconds of a forward. ``first`` says that nothing of the prefix is cached yet,
        ``quantile`` in [0, 1) picks the draw, and ``num_nodes`` is the size of the tree, root
        included."""
        ...


@dataclass(frozen=True, slots=True)
class FixedLatency:
    """Time to first token, then time per output token (DSI, Appendix F.1), and ``token_s`` for each
    draft token in a verification."""

    each_s: float
    first_s: float | None = None
    """None means the same as ``each_s``."""
    token_s: float = 0.0

    def forward_s(self, *, first: bool, quantile: float, num_nodes: int) -> float:  # noqa: ARG002
        """Return ``first_s`` for the first forward if it is set, else ``each_s``, plus the time of
        its tokens."""
        alone_s = self.first_s if first and self.first_s is not None else self.each_s
        return alone_s + self.token_s * (num_nodes - 1)


class MeasuredLatency:
    """Latencies drawn from a histogram, the count (any weight) of each latency in seconds."""

    def __init__(self, counts: Mapping[float, float]) -> None:
        if not counts or min(counts) < 0 or min(counts.values()) < 0 or not any(counts.values()):
            raise ValueError(
                "a histogram requires non-negative latencies and a positive total weight"
            )
        self._values_s = sorted(counts)
        self._cumulative = list(accumulate(counts[value] for value in self._values_s))

    def forward_s(self, *, first: bool, quantile: float, num_nodes: int) -> float:  # noqa: ARG002
        """Return the quantile ``quantile`` of the histogram."""
        return self._values_s[bisect_right(self._cumulative, quantile * self._cumulative[-1])]
