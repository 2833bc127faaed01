"""Distributions of the report, made of times or histograms."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean

from specmesh.load.histograms import Histogram
from specmesh.load.report import Distribution

_CDF_PERCENTS = (
    *(float(n) for n in range(0, 99)),
    *(99 + n / 10 for n in range(0, 10)),
    *(99.9 + n / 100 for n in range(0, 11)),
)
_DIGITS = 4
"""Of milliseconds: tenths of a microsecond."""


def distribution(seconds: Sequence[float]) -> Distribution | None:
    """That of ``seconds``, whose mean and extremes are exact; None if there are none."""
    if not seconds:
        return None
    mean = fmean(seconds)
    sd = sqrt(fmean((each - mean) ** 2 for each in seconds))
    return _of(Histogram.of(seconds), mean, sd, min(seconds), max(seconds))


def of_histogram(histogram: Histogram) -> Distribution | None:
    """The one that ``histogram`` holds, to three digits; None if it is empty."""
    if not histogram.count:
        return None
    return _of(
        histogram,
        histogram.mean(),
        histogram.sd(),
        histogram.percentile(0),
        histogram.percentile(100),
    )


def _of(histogram: Histogram, mean: float, sd: float, least: float, most: float) -> Distribution:
    def at(percent: float) -> float:
        return ms(min(max(histogram.percentile(percent), least), most))

    return Distribution(
        count=histogram.count,
        mean=ms(mean),
        sd=ms(sd),
        min=ms(least),
        max=ms(most),
        p50=at(50),
        p90=at(90),
        p95=at(95),
        p99=at(99),
        p99_9=at(99.9),
        cdf=[(at(percent), round(percent / 100, 4)) for percent in _CDF_PERCENTS],
        hdr=histogram.encoded(),
    )


def ms(seconds: float) -> float:
    """Rounded milliseconds."""
    return round(seconds * 1e3, _DIGITS)
