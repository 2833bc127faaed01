"""The check whether a server kept up with the offered load."""

from __future__ import annotations

from math import sqrt
from statistics import fmean

from specmesh.cli.printable import in_brief
from specmesh.load.results.report import Result

MAX_FAILED_SHARE = 0.05
MAX_LEFT_SHARE = 0.1
"""Allowed growth of the requests under way from the middle to the end, as a share of those due."""
_MIN_SECONDS = 4


def saturated(result: Result) -> str:
    """Return why the server did not keep up; empty if it did, or if the run was too short to tell.

    Requests that pile up differ from a steady number of long ones by growth from the second quarter
    of the time in which requests were due to the last. By chance alone, growth is about the square
    root of their number.
    """
    counts = result.counts
    if counts.failed > MAX_FAILED_SHARE * counts.due:
        reason = max(result.errors, key=lambda each: result.errors[each])
        return f"{counts.failed / counts.due:.0%} failed, most with {in_brief(reason)}"
    from_s, until_s = result.measured_from_s, result.due_until_s
    if until_s - from_s < _MIN_SECONDS:
        return ""
    quarter_s = (until_s - from_s) / 4
    before = _mean_under_way(result, from_s + quarter_s, from_s + 2 * quarter_s)
    after = _mean_under_way(result, until_s - quarter_s, until_s)
    # The middles of the two quarters are half of that time apart.
    num_due = counts.due / 2
    if after - before > MAX_LEFT_SHARE * num_due + 2 * sqrt(num_due):
        return f"requests pile up: {before:.0f} under way, later {after:.0f}"
    return ""


def _mean_under_way(result: Result, from_s: float, until_s: float) -> float:
    within = [each.under_way for each in result.timeline if from_s <= each.t_s < until_s]
    return fmean(within) if within else 0.0
