"""The report of the benchmark, as text in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from specmesh.bench.hcmp.exact import LIMIT, Exactness
from specmesh.bench.hcmp.speed import Speeds
from specmesh.inference.models.units.plans.planner import ATTENTION, Planner
from specmesh.tools.kit.tables import table_of


@dataclass(frozen=True, slots=True)
class ModelReport:
    """One model's figures. ``ping_us`` is the time of a message to the second unit and back."""

    model: str
    ping_us: float
    planner: Planner
    speeds: Sequence[Speeds]


def as_json(
    units: str, load: tuple[float, float], exact: Exactness, reports: Sequence[ModelReport]
) -> dict[str, Any]:
    """Return one JSON object. ``load`` is the machine's load average at beginning and end."""
    return {
        "units": units,
        "load": load,
        "exact": {**asdict(exact), "limit": LIMIT, "holds": exact.holds},
        "rows": [
            {
                "model": report.model,
                **asdict(speeds),
                "over_best": speeds.over_best,
            }
            for report in reports
            for speeds in report.speeds
        ],
        "work": [row for report in reports for row in _work(report)],
        "ping_us": {report.model: report.ping_us for report in reports},
    }


def show(
    load: tuple[float, float],
    exact: Exactness,
    reports: Sequence[ModelReport],
    console: Console,
) -> None:
    """Print the same as tables."""
    console.print(
        f"{exact.trees} random trees at contexts of up to {exact.longest} tokens: logits differ "
        f"by {exact.difference:.1e} at most\n"
        f"(limit {LIMIT:g}). Load of the machine {load[0]:.1f} before, {load[1]:.1f} after.",
        highlight=False,
    )
    for report in reports:
        title = f"{report.model}: ms of a forward by the second unit's share"
        table = table_of(
            title,
            report.speeds,
            (
                ("tokens", lambda each: str(each.width)),
                ("slower", lambda each: f"{each.slowness}x"),
                ("0", lambda each: f"{each.by_share_ms[0.0]:.2f}"),
                (".3", lambda each: f"{each.by_share_ms[0.3]:.2f}"),
                (".5", lambda each: f"{each.by_share_ms[0.5]:.2f}"),
                ("best", lambda each: f"{each.best_ms:.2f} at {each.best_share:.1f}"),
                ("planned", lambda each: f"{each.planned_ms:.2f} at {each.planned_share:.2f}"),
                ("over best", lambda each: f"{each.over_best:.2f}x"),
                ("adapted", lambda each: f"at {each.adapted_share:.2f}"),
                ("plain 1", lambda each: f"{each.plain_ms[1]:.2f}"),
                ("plain 2", lambda each: f"{each.plain_ms[2]:.2f}"),
            ),
        )
        console.print(table)


def _work(report: ModelReport) -> list[dict[str, Any]]:
    """Return the measurements of each kind of work, with units of equal speed, in microseconds."""
    return [
        {
            "model": report.model,
            "work": "attention" if work == ATTENTION else f"{work.features}x{work.columns}",
            "size": size,
            "alone_us": measured.alone_s * 1e6,
            "whole_us": [cost.whole_s * 1e6 for cost in measured.costs],
            "overhead_us": [cost.overhead_s * 1e6 for cost in measured.costs],
            "dividing_us": measured.dividing_s * 1e6,
            "shares": report.planner.shares(work, size),
        }
        for work, by_size in report.planner.measured.items()
        for size, measured in by_size.items()
    ]
