"""The calls that a node served, by time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from specmesh.traces.intervals import Interval
from specmesh.traces.spans import Span


class NodeCalls:
    """The calls that a node served, sorted by start."""

    def __init__(self, served: Sequence[Span]) -> None:
        self._served = served
        self._starts = [span.start_ns for span in served]
        self._last_ends = list(accumulate((span.end_ns for span in served), max))

    def within(self, stretch: Interval, but: Span) -> Iterator[Interval]:
        """Yield the parts of all calls except ``but`` that lie in ``stretch``."""
        since_ns, until_ns = stretch
        for index in range(bisect_left(self._starts, until_ns) - 1, -1, -1):
            if self._last_ends[index] <= since_ns:
                return  # All earlier ones had ended.
            span = self._served[index]
            if span is not but and span.end_ns > since_ns:
                yield max(span.start_ns, since_ns), min(span.end_ns, until_ns)
