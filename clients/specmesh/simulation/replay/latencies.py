"""Latencies of a trace for the simulation; the unexplained part is drawn at random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import StatisticsError, linear_regression, median

from specmesh.simulation.latency import Latency, MeasuredLatency
from specmesh.simulation.replay.recorded import Forward


@dataclass(frozen=True, slots=True)
class PerNode:
    """A latency of ``base_s``, plus ``node_s`` for each node of a tree, plus a draw from ``rest``,
    plus ``first_s`` for a replica's first forward of the request."""

    base_s: float
    node_s: float
    rest: MeasuredLatency
    first_s: float

    def forward_s(self, *, first: bool, quantile: float, num_nodes: int) -> float:
        """Return the seconds of a forward, never below zero."""
        rest_s = self.rest.forward_s(first=first, quantile=quantile, num_nodes=num_nodes)
        return max(self.base_s + self.node_s * num_nodes + rest_s, 0.0) + self.first_s * first


def target_latency(forwards: Sequence[Forward]) -> Latency:
    """Fit the latency of one or more forwards. More nodes never make it quicker."""
    later = [each for each in forwards if not each.first] or forwards
    node_s = _slope(later)
    base_s = median(each.seconds - node_s * each.num_nodes for each in later)
    rest = [each.seconds - node_s * each.num_nodes - base_s for each in later]
    firsts = [
        each.seconds - node_s * each.num_nodes - base_s for each in forwards if each.first
    ] or [0.0]
    lowest = min(rest)
    return PerNode(
        base_s + lowest,
        node_s,
        MeasuredLatency(Counter(each - lowest for each in rest)),
        max(median(firsts), 0.0),
    )


def drafter_latency(levels_s: Sequence[float]) -> Latency:
    """Return a latency drawn from the drafts, each of which counts once."""
    return MeasuredLatency(Counter(levels_s))


def _slope(forwards: Sequence[Forward]) -> float:
    sizes = [each.num_nodes for each in forwards]
    try:
        fitted = linear_regression(sizes, [each.seconds for each in forwards])
    except StatisticsError:  # There is only one size.
        return 0.0
    return max(fitted.slope, 0.0)
