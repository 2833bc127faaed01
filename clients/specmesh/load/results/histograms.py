"""HdrHistograms (Gil Tene's high dynamic range histograms): three digits, mergeable, small."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from hdrh.histogram import HdrHistogram

_LOWEST_US = 1
_HIGHEST_US = 3_600_000_000
_DIGITS = 3
_US = 1e6


def nearest_rank(percent: float, count: int) -> int:
    """Return the rank, from 1, of a percentile among ``count`` ascending values.

    HdrHistogram uses this rule. All other percentiles follow it, so that two figures for the same
    quantity are equal.
    """
    return max(1, int(percent * count / 100 + 0.5))


def percentile_of(values: Iterable[float], percent: float) -> float:
    """Return the percentile of ``values``, which must not be empty."""
    ascending = sorted(values)
    return ascending[nearest_rank(percent, len(ascending)) - 1]


class Histogram:
    """A histogram of times from a microsecond to an hour; times beyond count as these limits."""

    def __init__(self) -> None:
        self._hdr = HdrHistogram(_LOWEST_US, _HIGHEST_US, _DIGITS)

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Histogram:
        """Return a histogram of ``seconds``."""
        histogram = cls()
        for each in seconds:
            histogram.record(each)
        return histogram

    @classmethod
    def decoded(cls, encoded: str) -> Histogram:
        """Return the histogram that ``encoded`` wrote."""
        histogram = cls()
        histogram._hdr.decode_and_add(encoded.encode())
        return histogram

    def __reduce__(self) -> tuple[object, ...]:
        return Histogram.decoded, (self.encoded(),)

    @property
    def count(self) -> int:
        """Return the number of recorded times."""
        return int(self._hdr.get_total_count())

    def record(self, seconds: float, count: int = 1) -> None:
        """Add a time ``count`` times."""
        us = round(seconds * _US)
        self._hdr.record_value(min(max(us, _LOWEST_US), _HIGHEST_US), count)

    def add(self, other: Histogram) -> None:
        """Add all times of another histogram."""
        self._hdr.add(other._hdr)

    def percentile(self, percent: float) -> float:
        """Return a percentile in seconds; 0 if the histogram is empty."""
        return self.percentiles((percent,))[0]

    def percentiles(self, percents: Sequence[float]) -> list[float]:
        """Return several percentiles, ascending, in one pass; a pass takes a millisecond or
        more."""
        if not self.count:
            return [0.0] * len(percents)
        found = self._hdr.get_percentile_to_value_dict(list(percents))
        return [float(found[percent]) / _US for percent in percents]

    def shares_up_to(self, seconds: Sequence[float]) -> list[float]:
        """Return the share of the times up to each of ``seconds``, to three digits of these."""
        places = range(self._hdr.counts_len)
        counts = list(accumulate(map(self._hdr.get_count_at_index, places)))
        ends = (
            bisect_right(places, round(each * _US), key=self._hdr.get_value_from_index)
            for each in seconds
        )
        return [counts[end - 1] / counts[-1] for end in ends]

    def mean(self) -> float:
        """Return the mean in seconds."""
        return float(self._hdr.get_mean_value()) / _US

    def sd(self) -> float:
        """Return the standard deviation in seconds."""
        return float(self._hdr.get_stddev()) / _US

    def encoded(self) -> str:
        """Return HdrHistogram's V2 format, compressed, in base64; every implementation reads it."""
        encoded: bytes = self._hdr.encode()
        return encoded.decode()
