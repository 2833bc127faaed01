"""The check whether the generator itself limited the load or added to the latencies."""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.load.generators.fleet import Busy
from specmesh.load.results.report import GeneratorProcess
from specmesh.load.workload.durations import written

MAX_LAG_S = 1e-3
"""Allowed 99th percentile of the time from when a request was due until it was sent."""
MAX_CPU_SHARE = 0.9
"""Share of a core: Python uses one, and near its limit requests queue in the generator."""


def cpu_share(busy: Sequence[Busy], from_s: float, until_s: float) -> float:
    """Return how many cores a process used between two times, as far as it has reported."""
    within = [each for each in busy if from_s <= each.at_s <= until_s]
    if len(within) < 2:  # noqa: PLR2004
        within = list(busy)
    if len(within) < 2:  # noqa: PLR2004
        return 0.0
    first, last = within[0], within[-1]
    return (last.cpu_s - first.cpu_s) / max(last.at_s - first.at_s, 1e-9)


def reasons(
    processes: Sequence[GeneratorProcess], lag_p99_s: float, num_without_descriptor: int
) -> list[str]:
    """Return the reasons why the generator was the bottleneck; empty if it was not.

    ``num_without_descriptor`` requests failed because it could not open a connection for them.
    """
    found = []
    if lag_p99_s > MAX_LAG_S:
        found.append(
            f"one request in a hundred was sent more than {written(lag_p99_s)} late "
            f"({written(MAX_LAG_S)} is allowed)"
        )
    busiest = max((each.cpu_share for each in processes), default=0.0)
    if busiest > MAX_CPU_SHARE:
        found.append(f"a generator process used {busiest:.0%} of a core")
    if num_without_descriptor:
        found.append(
            f"no file descriptor was left for {num_without_descriptor} of the requests: raise the "
            "limit (ulimit -n), or use more --processes"
        )
    return found
