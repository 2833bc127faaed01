"""The comparison of two runs: whether one was faster, by how much, and with what uncertainty.

It uses the moving block bootstrap (Künsch 1989): latencies under load depend on the ones before, so
whole stretches of a run are resampled, not single requests. The statistics themselves are those
that the reports give; the bootstrap only adds their uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.load.results.histograms import nearest_rank
from specmesh.load.results.report import SCHEMA

NUM_BLOCKS = 50
"""Number of blocks of a run: enough of them to vary, and each long enough to keep dependent
requests together."""
NUM_RESAMPLES = 1000
MIN_REQUESTS = 50
PERCENTILES = (50, 95, 99)
STATISTICS = ("mean", *(f"p{percent}" for percent in PERCENTILES))
METRICS = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "end to end"}
_CONFIDENCE = 95
_SEED = 0
_CELLS_AT_ONCE = 1 << 20
"""Bound on the number of values resampled at the same time, and so on memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticDifference:
    """The change of one statistic of one metric. ``before`` and ``after`` are in milliseconds.
    ``low`` and ``high`` bound the change with 95 % confidence, as shares of ``before``; None if
    that is 0, or may be."""

    metric: str
    statistic: str
    before: float
    after: float
    low: float | None
    high: float | None

    @property
    def in_words(self) -> str:
        """Return the change in words, such as ``slower by 3 to 7 %``."""
        if self.low is None or self.high is None:
            return "no change in percent: before is 0, or may be"
        if self.low > 0:
            return f"slower by {_range(self.low, self.high)}"
        if self.high < 0:
            return f"faster by {_range(-self.high, -self.low)}"
        return f"no difference shown ({self.low * 100:+.1f} to {self.high * 100:+.1f} %)"


def latencies(report: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Return the latencies of each metric that has some. Raises ValueError if this is not a report
    of a run, or if it has too few requests."""
    if report.get("schema") != SCHEMA or report.get("kind") != "run":
        raise ValueError(f"is not a report of 'specmesh load run' with schema {SCHEMA}")
    listed = report["result"]["requests"]
    known = {name: [each for each in listed[name] if each is not None] for name in METRICS}
    for values in filter(None, known.values()):
        if len(values) < MIN_REQUESTS:
            raise ValueError(
                f"has {len(values)} answers; a comparison requires at least {MIN_REQUESTS}"
            )
    return {name: np.array(values) for name, values in known.items() if values}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[StatisticDifference]:
    """Return the differences between two reports of runs, read from JSON. Raises ValueError if one
    is not a report of a run, or has too few requests."""
    found = []
    olds, news = latencies(before), latencies(after)
    for metric in (each for each in METRICS if each in olds and each in news):
        old, new = olds[metric], news[metric]
        reported = [_reported(each, metric) for each in (before, after)]
        # TPOT is zero if answers come in one chunk; a relative change is then undefined (None).
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = _bounds(old, new, reported[1] / reported[0])
        found += [
            StatisticDifference(
                metric=metric,
                statistic=name,
                before=float(reported[0][n]),
                after=float(reported[1][n]),
                **_rounded(low[n], high[n]),
            )
            for n, name in enumerate(STATISTICS)
        ]
    return found


def _reported(report: Mapping[str, Any], metric: str) -> NDArray[np.float64]:
    """Return the statistics that the report itself gives, [len(STATISTICS)]."""
    found = report["result"]["latency"][metric]
    return np.array([found[name] for name in STATISTICS], dtype=np.float64)


def _bounds(
    old: NDArray[np.float64], new: NDArray[np.float64], reported: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return both bounds of the relative change of each statistic, [2, len(STATISTICS)].

    ``reported`` is after over before. The listed answers may be a part of those reported, so their
    resamples only tell how far such a ratio spreads around the reported one.
    """
    listed = _statistics(new[None, :])[0] / _statistics(old[None, :])[0]
    changes = _resampled(new) / _resampled(old) / listed * reported - 1
    margin = (100 - _CONFIDENCE) / 2
    bounds: NDArray[np.float64] = np.percentile(changes, (margin, 100 - margin), axis=0)
    return bounds


def _statistics(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the statistics of each row, [rows, len(STATISTICS)]."""
    places = [nearest_rank(percent, rows.shape[1]) - 1 for percent in PERCENTILES]
    return np.column_stack((rows.mean(axis=1), np.partition(rows, places, axis=1)[:, places]))


def _resampled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the statistics of each resample, [NUM_RESAMPLES, len(STATISTICS)]."""
    rng = np.random.default_rng((_SEED, len(values)))
    length = -(-len(values) // NUM_BLOCKS)
    # The values wrap around, so that every position is drawn with equal probability.
    around = np.concatenate((values, values[: length - 1]))
    blocks = np.lib.stride_tricks.sliding_window_view(around, length)
    starts = rng.integers(len(values), size=(NUM_RESAMPLES, NUM_BLOCKS))
    at_once = max(1, _CELLS_AT_ONCE // len(values))
    return np.concatenate(
        [
            _statistics(blocks[some].reshape(len(some), -1)[:, : len(values)])
            for some in np.split(starts, range(at_once, NUM_RESAMPLES, at_once))
        ]
    )


def _rounded(low: float, high: float) -> dict[str, float | None]:
    if not np.isfinite((low, high)).all():
        return {"low": None, "high": None}
    return {"low": round(float(low), 5), "high": round(float(high), 5)}


def _range(low: float, high: float) -> str:
    digits = 0 if round(low * 100) != round(high * 100) else 1
    return f"{low * 100:.{digits}f} to {high * 100:.{digits}f} %"
