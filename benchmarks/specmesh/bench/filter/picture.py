"""CALID's Figure 3 for our pair: a picture and a CSV file."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

from specmesh.bench.filter.summary import SweepPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MEASURES = {
    "agreement": "agreement with the target's greedy choice",
    "target_loglik": "target's log-probability, nats a token",
}
_AGAINST = {
    "kept_share": "share of tokens answered by the drafter",
    "tokens_per_s": "tokens/s",
}
_STYLES = {"log-probability": ("o-", "CALID (log-probability)"), "calibrated": ("s-", "calibrated")}
_DOTS_PER_INCH = 120


def write_csv(points: Sequence[SweepPoint], path: Path) -> None:
    """Write a line for each point, infinite thresholds as inf."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(
            file, [field.name for field in fields(SweepPoint)], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(asdict(point) for point in points)


def draw(points: Sequence[SweepPoint], path: Path) -> None:
    """Draw two panels for each measure of quality: against the kept share, and against speed."""
    # The import takes a while, and most commands don't need it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    for row, (measure, label) in zip(figure.subplots(2, 2), _MEASURES.items(), strict=True):
        for axes, (across, title) in zip(row, _AGAINST.items(), strict=True):
            _panel(axes, points, across, measure)
            axes.set_xlabel(title)
            axes.set_ylabel(label)
        row[0].legend()
    figure.savefig(path, dpi=_DOTS_PER_INCH)


def _panel(axes: Axes, points: Sequence[SweepPoint], across: str, measure: str) -> None:
    for scorer in dict.fromkeys(point.scorer for point in points):
        own = sorted(
            (point for point in points if point.scorer == scorer),
            key=lambda point: point.kept_share,
        )
        style, label = _STYLES.get(scorer, (".-", scorer))
        axes.plot(
            [getattr(point, across) for point in own],
            [getattr(point, measure) for point in own],
            style,
            label=label,
            alpha=0.8,
        )
    for threshold, name in ((math.inf, "target alone"), (-math.inf, "drafter alone")):
        ends = [point for point in points if point.threshold == threshold]
        axes.plot(
            [getattr(point, across) for point in ends[:1]],
            [getattr(point, measure) for point in ends[:1]],
            "*",
            markersize=15,
            label=name,
        )
    axes.grid(visible=True, alpha=0.3)
