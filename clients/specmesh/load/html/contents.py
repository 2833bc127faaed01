"""The contents of the page, from reports in JSON form; ``assets`` draws them.

Only means over time steps are computed here: the page shows nothing that a report does not contain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specmesh.load.html import columns, verdict
from specmesh.load.html.facts import DescribedReport, Read, facts
from specmesh.load.html.percentiles import percentiles, times
from specmesh.load.results.report import SCHEMA

METRICS = {f"{name}_ms": label for name, label in verdict.NAMES.items()}
POINTS = frozenset({"sweep", "search"})
"""Kinds of reports that have runs at several rates."""

_MAX_STEPS = 600
_ALL_STEPS = 2500
"""Bound on the steps of all runs of a page together, which keeps it below a megabyte."""
_LEAST_STEPS = 20
_ALL_TRACES = 400
_LEAST_TRACES = 3


def page(reports: Sequence[tuple[str, Read]]) -> dict[str, Any]:
    """Return a page of one or several reports, each with its name. Raises ValueError for reports of
    another schema, or of kinds that can't share a page, and KeyError if a report lacks a field."""
    for name, report in reports:
        if report.get("schema") != SCHEMA or report.get("kind") not in {"run", *POINTS}:
            raise ValueError(f"{name} is not a report with schema {SCHEMA}")
    kinds = {report["kind"] in POINTS for _, report in reports}
    if len(kinds) > 1:
        raise ValueError("runs can't share a page with sweeps or searches")
    return _of_points(reports) if kinds == {True} else _of_runs(reports)


def comparison(
    before: tuple[str, Read],
    after: tuple[str, Read],
    differences: Sequence[Read],
    others: Sequence[str],
) -> dict[str, Any]:
    """Return a page of two runs and their ``differences``, those of ``load compare --json``. Raises
    the same errors as ``page``."""
    reports = [
        (name if name == role else f"{role}: {name}", report)
        for role, (name, report) in (("before", before), ("after", after))
    ]
    listed = [{**each, "label": METRICS[each["metric"]]} for each in differences]
    return {
        **page(reports),
        "title": f"{after[0]} against {before[0]}",
        "verdict": verdict.of_comparison(listed, others, reports),
        "differences": listed,
    }


def _of_runs(reports: Sequence[tuple[str, Read]]) -> dict[str, Any]:
    several = len(reports) > 1
    return {
        "title": " and ".join(name for name, _ in reports)
        if several
        else f"Load on {reports[0][1]['setting']['server']}",
        "verdict": [
            sentence
            for name, report in reports
            for sentence in verdict.of_run(report["result"], name if several else "")
        ],
        "names": [name for name, _ in reports],
        "facts": facts(
            [
                DescribedReport(setting=report["setting"], began=report["result"]["began"])
                for _, report in reports
            ]
        ),
        "sweep": False,
        "runs": [_run(name, report["result"], len(reports)) for name, report in reports],
    }


def _of_points(reports: Sequence[tuple[str, Read]]) -> dict[str, Any]:
    several = len(reports) > 1
    points = [
        (_group(name if several else "", point["changed"]), point)
        for name, report in reports
        for point in report["points"]
    ]
    return {
        "title": " and ".join(name for name, _ in reports)
        if several
        else f"Load on {reports[0][1]['setting']['server']}, by rate",
        "verdict": [
            each
            for name, report in reports
            for each in _points_verdict(name if several else "", report)
        ],
        "names": [name for name, _ in reports],
        "facts": facts([_described(report) for _, report in reports]),
        "sweep": True,
        "runs": [
            {
                **_run(f"{group} {point['rate']:.4g}/s".strip(), point["result"], len(points)),
                "group": group,
                "rate": point["rate"],
                "saturated": point["saturated"],
                "meets": point["meets"],
            }
            for group, point in points
        ],
    }


def _described(report: Read) -> DescribedReport:
    points = report["points"]
    return DescribedReport(
        setting=report["setting"],
        began=next((point["result"]["began"] for point in points), ""),
        rates=_rates(points),
        varied=_varied([point["changed"] for point in points]),
    )


def _points_verdict(name: str, report: Read) -> list[verdict.Sentence]:
    early = verdict.of_early_end(report, name)
    if report["kind"] == "search":
        return [*verdict.of_search(report, name), *early]
    groups = [_group(name, point["changed"]) for point in report["points"]]
    return [*verdict.of_sweep(report["points"], groups), *early]


def _group(name: str, changed: Mapping[str, str]) -> str:
    settings = (
        value if option == "strategy" else f"{option}={value}" for option, value in changed.items()
    )
    return " ".join(part for part in (name, *settings) if part)


def _varied(changes: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the values of each varied option."""
    names = dict.fromkeys(name for changed in changes for name in changed)
    return {
        name: list(dict.fromkeys(changed[name] for changed in changes if name in changed))
        for name in names
    }


def _rates(points: Sequence[Read]) -> str:
    rates = sorted({point["rate"] for point in points})
    return ", ".join(f"{rate:.3g}" for rate in rates)


def _run(name: str, result: Read, num_runs: int) -> dict[str, Any]:
    """Return one run as the page shows it, among ``num_runs`` in all."""
    steps = min(_MAX_STEPS, max(_LEAST_STEPS, _ALL_STEPS // num_runs))
    traces = max(_LEAST_TRACES, _ALL_TRACES // num_runs)
    parts = _parts(result)
    pairs = max(_LEAST_STEPS, 2 * steps // len(parts))
    kept = ("counts", "throughput", "goodput", "speculation")
    return {
        "name": name,
        **{key: result[key] for key in kept},
        "measured": [result["measured_from_s"], result["measured_until_s"]],
        "errors": list(result["errors"].items()),
        "percentiles": percentiles(result),
        "tokens_per_chunk": {
            "size": [int(size) for size in result["tokens_per_chunk"]],
            "count": list(result["tokens_per_chunk"].values()),
        },
        "cdfs": {
            metric: [
                {"name": part, **columns.cdf(latency[metric]["cdf"], pairs)}
                for part, latency in parts
                if latency[metric] is not None
            ]
            for metric in METRICS
        },
        "variations": [
            {
                **{key: each[key] for key in ("name", "counts", "speculation")},
                "percentiles": times(each["latency"]),
            }
            for each in result["variations"]
        ],
        "timeline": columns.timeline(result["timeline"], steps),
        "generator": _generator(result["generator"]),
        "servers": [_server(each, steps // len(result["servers"])) for each in result["servers"]],
        "slowest": result["slowest"][:traces],
        "failed": result["failed"][:traces],
        "num_left_out": sum(max(0, len(result[key]) - traces) for key in ("slowest", "failed")),
    }


def _parts(result: Read) -> list[tuple[str, Read]]:
    """Return the latencies of all requests, then those of each variation."""
    variations = [(each["name"], each["latency"]) for each in result["variations"]]
    return [("all" if variations else "", result["latency"]), *variations]


def _generator(made: Read) -> dict[str, Any]:
    lag = made["lag_ms"]
    return {
        "processes": made["processes"],
        "lag_ms": None if lag is None else {key: lag[key] for key in ("p50", "p99", "max")},
    }


def _server(found: Read, steps: int) -> dict[str, Any]:
    told = {key: value for key, value in found.items() if key != "samples"}
    return {**told, "samples": columns.samples(found["samples"], max(1, steps))}
