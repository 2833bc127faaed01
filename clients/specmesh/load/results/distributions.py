"""The distributions of the report, computed from latencies or histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

from specmesh.load.results.histograms import Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyDistribution:
    """A distribution of times, in milliseconds. ``cdf`` has pairs of a time and the share of times
    up to it; ``hdr`` is the whole histogram, in HdrHistogram's V2 format."""

    count: int
    mean: float
    sd: float
    min: float
    max: float
    p50: float
    p90: float
    p95: float
    p99: float
    p99_9: float
    cdf: Sequence[tuple[float, float]]
    hdr: str


_CDF_PERCENTS = (
    *(float(n) for n in range(0, 99)),
    *(99 + n / 10 for n in range(0, 9)),
    *(round(99.9 + n / 100, 2) for n in range(0, 11)),
)
_SHARE_DIGITS = 6
_DIGITS = 4
"""Decimals of milliseconds, down to tenths of a microsecond."""


def distribution(seconds: Sequence[float]) -> LatencyDistribution | None:
    """Return the distribution of ``seconds``, with exact mean and extremes; None if it is empty."""
    if not seconds:
        return None
    mean = fmean(seconds)
    sd = sqrt(fmean((each - mean) ** 2 for each in seconds))
    return _of(Histogram.of(seconds), mean, sd, min(seconds), max(seconds))


def of_histogram(histogram: Histogram) -> LatencyDistribution | None:
    """Return the distribution in ``histogram``, to three digits; None if it is empty."""
    if not histogram.count:
        return None
    return _of(
        histogram,
        histogram.mean(),
        histogram.sd(),
        *histogram.percentiles((0.0, 100.0)),
    )


def _of(
    histogram: Histogram, mean: float, sd: float, least: float, most: float
) -> LatencyDistribution:
    found = histogram.percentiles(_CDF_PERCENTS)
    times = [ms(min(max(seconds, least), most)) for seconds in found]
    at = dict(zip(_CDF_PERCENTS, times, strict=True))
    # Many percentiles may be one time, up to which there is one share.
    cdf = dict(zip(histogram.shares_up_to(found), times, strict=True))
    return LatencyDistribution(
        count=histogram.count,
        mean=ms(mean),
        sd=ms(sd),
        min=ms(least),
        max=ms(most),
        p50=at[50.0],
        p90=at[90.0],
        p95=at[95.0],
        p99=at[99.0],
        p99_9=at[99.9],
        cdf=[(time, round(share, _SHARE_DIGITS)) for share, time in cdf.items()],
        hdr=histogram.encoded(),
    )


def ms(seconds: float) -> float:
    """Convert to rounded milliseconds."""
    return round(seconds * 1e3, _DIGITS)
