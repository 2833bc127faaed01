"""Histograms of our own, which readers of the OpenTelemetry SDK add to what they export.

The SDK cleans, sorts and hashes the attributes of every measurement, which takes 3 to 6
microseconds of processor time; that was a tenth of what a verification cost a verifier. Here a set
of attributes is looked up once, and a measurement adds to its counts.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Attributes = Mapping[str, str | int]
NO_ATTRIBUTES: Attributes = {}

MOST_SERIES = 2000
"""The most sets of attributes of a histogram, as in the SDK; the others share one."""
OVERFLOW: Attributes = {"otel.metric.overflow": True}


class Counted(NamedTuple):
    """The counts of a series by bucket, and the sum of what was observed."""

    buckets: Sequence[int]
    total: float

    def since(self, before: Counted | None) -> Counted:
        """Return what was counted after ``before``."""
        if before is None:
            return self
        pairs = zip(self.buckets, before.buckets, strict=True)
        return Counted([now - then for now, then in pairs], self.total - before.total)


class Series:
    """The numbers of a histogram that have the same ``attributes``. Any thread may record."""

    def __init__(self, attributes: Attributes, bounds: Sequence[float]) -> None:
        self.attributes = attributes
        self._bounds = bounds
        self._buckets = [0] * (len(bounds) + 1)
        self._total = 0.0
        # A finalizer may record while its thread is within the block.
        self._lock = threading.RLock()

    def record(self, number: float) -> None:
        """Count ``number`` in the first bucket whose bound is not below it."""
        bucket = bisect_left(self._bounds, number)
        with self._lock:
            self._buckets[bucket] += 1
            self._total += number

    def counted(self) -> Counted:
        """Return all that was recorded so far."""
        with self._lock:
            return Counted(tuple(self._buckets), self._total)


class HistogramInstrument:
    """Counts numbers by bucket for each set of attributes. ``bounds`` are the upper bounds of all
    buckets but the last."""

    def __init__(self, name: str, unit: str, description: str, bounds: Sequence[float]) -> None:
        self.name, self.unit, self.description, self.bounds = name, unit, description, bounds
        self._series: dict[frozenset[tuple[str, str | int]], Series] = {}
        self._lock = threading.Lock()

    def record(self, number: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Record a number with ``attributes``. Where these are few, keep their series instead."""
        self.series(attributes).record(number)

    def series(self, attributes: Attributes = NO_ATTRIBUTES) -> Series:
        """Return the series of ``attributes``, to record with."""
        key = frozenset(attributes.items())
        found = self._series.get(key)
        return self._added(key, attributes) if found is None else found

    def all_series(self) -> Sequence[Series]:
        """Return the series of all attributes so far."""
        with self._lock:
            return tuple(self._series.values())

    def _added(self, key: frozenset[tuple[str, str | int]], attributes: Attributes) -> Series:
        with self._lock:
            if len(self._series) >= MOST_SERIES:
                key, attributes = frozenset(OVERFLOW.items()), OVERFLOW
            if key not in self._series:
                self._series[key] = Series(dict(attributes), self.bounds)
            return self._series[key]


histograms: dict[str, HistogramInstrument] = {}
"""The histograms of this process, by name."""
BEGAN_NS = time.time_ns()
"""The time from which on they count."""
