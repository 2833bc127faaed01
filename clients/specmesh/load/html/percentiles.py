"""The rows of the tables of percentiles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from specmesh.load.html.facts import Read
from specmesh.load.results.histograms import nearest_rank

_PERCENTS = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99_9": 99.9}


def percentiles(result: Read) -> list[dict[str, Any]]:
    """Return the rows of the table of percentiles."""
    chunks = {int(size): count for size, count in result["tokens_per_chunk"].items() if count}
    between = ("inter_chunk_ms", "inter_token_ms")
    # Older reports lack the time between tokens.
    found = times({**result["latency"], **{each: result.get(each) for each in between}})
    if "inter_token_ms" not in {each["metric"] for each in found}:
        found += _mean_between_tokens(result)
    if chunks:
        found.append({"metric": "tokens_per_chunk", **_of_sizes(chunks)})
    return found


def _mean_between_tokens(result: Read) -> list[dict[str, Any]]:
    """Return the row for a server that counts tokens only at the end of an answer."""
    mean = result.get("mean_inter_token_ms")
    if mean is None:
        return []
    unknown = dict.fromkeys(("count", *_PERCENTS, "max"))
    return [{"metric": "mean_inter_token_ms", "mean": mean, **unknown}]


def times(latency: Read) -> list[dict[str, Any]]:
    """Return a row for each distribution of ``latency``."""
    return [
        {"metric": metric, **{key: found[key] for key in ("count", "mean", *_PERCENTS, "max")}}
        for metric, found in latency.items()
        if found is not None
    ]


def _of_sizes(chunks: Mapping[int, int]) -> dict[str, Any]:
    """Return the same statistics of whole numbers, given the count of each."""
    sizes = sorted(chunks)
    cumulated = list(accumulate(chunks[size] for size in sizes))
    total = cumulated[-1]

    def at(percent: float) -> int:
        return sizes[bisect_left(cumulated, nearest_rank(percent, total))]

    mean = sum(size * count for size, count in chunks.items()) / total
    return {
        "count": total,
        "mean": mean,
        **{name: at(percent) for name, percent in _PERCENTS.items()},
        "max": sizes[-1],
    }
