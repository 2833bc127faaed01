"""Histograms of high dynamic range, as Gil Tene's: three digits, mergeable, small."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hdrh.histogram import HdrHistogram

_LOWEST_US = 1
_HIGHEST_US = 3_600_000_000
_DIGITS = 3
_US = 1e6


def nearest_rank(percent: float, count: int) -> int:
    """Return the place, from 1, of a percentile among ``count`` ascending values.

    HdrHistogram picks by this rule; whatever else has percentiles follows it, so that two numbers
    for the same thing are equal.
    """
    return max(1, int(percent * count / 100 + 0.5))


def percentile_of(values: Iterable[float], percent: float) -> float:
    """Return the percentile of ``values``, of which there must be one at least."""
    ascending = sorted(values)
    return ascending[nearest_rank(percent, len(ascending)) - 1]


class Histogram:
    """Of times, from a microsecond to an hour; what is beyond counts as that."""

    def __init__(self) -> None:
        self._hdr = HdrHistogram(_LOWEST_US, _HIGHEST_US, _DIGITS)

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Histogram:
        """With all of ``seconds``."""
        histogram = cls()
        for each in seconds:
            histogram.record(each)
        return histogram

    @classmethod
    def decoded(cls, encoded: str) -> Histogram:
        """The one that ``encoded`` wrote."""
        histogram = cls()
        histogram._hdr.decode_and_add(encoded.encode())
        return histogram

    def __reduce__(self) -> tuple[object, ...]:
        return Histogram.decoded, (self.encoded(),)

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self._hdr.get_total_count())

    def record(self, seconds: float, count: int = 1) -> None:
        """Add one, or ``count`` that are equal."""
        us = round(seconds * _US)
        self._hdr.record_value(min(max(us, _LOWEST_US), _HIGHEST_US), count)

    def add(self, other: Histogram) -> None:
        """Add all of another."""
        self._hdr.add(other._hdr)

    def percentile(self, percent: float) -> float:
        """The seconds that ``percent`` in a hundred don't exceed; 0 if there are none."""
        return self.percentiles((percent,))[0]

    def percentiles(self, percents: Sequence[float]) -> list[float]:
        """Those of several, ascending, in one pass: a pass takes a millisecond or more."""
        if not self.count:
            return [0.0] * len(percents)
        found = self._hdr.get_percentile_to_value_dict(list(percents))
        return [float(found[percent]) / _US for percent in percents]

    def mean(self) -> float:
        """In seconds."""
        return float(self._hdr.get_mean_value()) / _US

    def sd(self) -> float:
        """Standard deviation in seconds."""
        return float(self._hdr.get_stddev()) / _US

    def encoded(self) -> str:
        """HdrHistogram's V2 format, compressed, in base64; every implementation reads it."""
        encoded: bytes = self._hdr.encode()
        return encoded.decode()
