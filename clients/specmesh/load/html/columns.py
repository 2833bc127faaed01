"""Values over time in columns of bounded size: the timeline, and samples of servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from specmesh.load.html.facts import Read

Columns = Mapping[str, Sequence[float | None]]

_SUMMED = ("due", "answered", "failed", "output_tokens")
_LATENCIES = ("ttft_p50_ms", "ttft_p99_ms", "e2e_p50_ms")
_SAMPLED = ("cpu_cores", "forward_share", "queue_depth", "waiting")
_DIGITS = 4


def timeline(seconds: Sequence[Read], most: int) -> dict[str, Any]:
    """Return the timeline in at most ``most`` steps of ``every_s`` whole seconds. Counts become
    means per second; of requests under way and latencies, the highest second remains."""
    steps = _steps(seconds, most)
    columns: dict[str, list[float | None]] = {"t_s": [each[0]["t_s"] for each in steps]}
    for name in _SUMMED:
        columns[name] = [_rounded(fmean(second[name] for second in each)) for each in steps]
    for name in ("under_way", *_LATENCIES):
        columns[name] = [_highest(each, name) for each in steps]
    return {"every_s": max(map(len, steps), default=1), **columns}


def samples(found: Sequence[Read], most: int) -> dict[str, Any]:
    """Return the samples of a server in at most ``most`` steps. Shares are averaged, queues become
    the maximum. Metrics that the server never reported are left out."""
    steps = _steps(found, most)
    columns: dict[str, list[float | None]] = {"t_s": [each[-1]["t_s"] for each in steps]}
    for name in _SAMPLED:
        merged = _mean if name in {"cpu_cores", "forward_share"} else _highest
        values = [merged(each, name) for each in steps]
        if any(value is not None for value in values):
            columns[name] = values
    return dict(columns)


def cdf(pairs: Sequence[Sequence[float]], most: int) -> dict[str, list[float]]:
    """Return times in milliseconds and the share up to each, thinned to about ``most`` of
    ``pairs``. The first and the last are kept."""
    step = max(1, -(-len(pairs) // most))
    kept = [*pairs[:-1:step], *pairs[-1:]]
    return {"ms": [each[0] for each in kept], "share": [each[1] for each in kept]}


def _steps(found: Sequence[Read], most: int) -> list[Sequence[Read]]:
    """Split ``found`` into at most ``most`` steps of equal length."""
    length = max(1, -(-len(found) // most))
    return [found[n : n + length] for n in range(0, len(found), length)]


def _told(each: Sequence[Read], name: str) -> list[float]:
    return [second[name] for second in each if second[name] is not None]


def _highest(each: Sequence[Read], name: str) -> float | None:
    return max(_told(each, name), default=None)


def _mean(each: Sequence[Read], name: str) -> float | None:
    told = _told(each, name)
    return _rounded(fmean(told)) if told else None


def _rounded(value: float) -> float:
    return round(value, _DIGITS)
