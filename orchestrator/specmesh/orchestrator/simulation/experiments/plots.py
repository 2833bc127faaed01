"""The experiments as pictures and as tables of comma-separated values."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from specmesh.orchestrator.simulation.experiments.branch_figures import Point
from specmesh.orchestrator.simulation.experiments.offline import Cell
from specmesh.orchestrator.simulation.experiments.speedups import SPEEDUPS

_TICKS = (0.25, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100)


def heat_maps(cells: Sequence[Cell], num_tokens: int, path: Path) -> None:
    """Figure 2 of DSI: four speed-ups over drafter latency and acceptance, pink below 1."""
    figure = Figure(figsize=(12, 10), layout="constrained")
    figure.suptitle(
        f"Speed-up over {num_tokens} tokens, each at its best lookahead (DSI: SP = 7, "
        "Equation 1). Pink: slower.",
        fontsize=14,
    )
    for axes, letter, (title, speedup) in zip(
        figure.subplots(2, 2).flat, "abcd", SPEEDUPS.items(), strict=True
    ):
        _heat_map(figure, axes, cells, speedup)
        axes.set_title(f"({letter}) {title}", fontsize=13)
    figure.savefig(path, dpi=120)


def _heat_map(
    figure: Figure, axes: Axes, cells: Sequence[Cell], speedup: Callable[[Cell], float]
) -> None:
    latencies = sorted({cell.drafter_latency for cell in cells})
    acceptances = sorted({cell.acceptance for cell in cells})
    logs = np.full((len(acceptances), len(latencies)), np.nan)
    for cell in cells:
        place = acceptances.index(cell.acceptance), latencies.index(cell.drafter_latency)
        logs[place] = np.log(speedup(cell))
    # The same distance from 1 on either side, in factors; rounding errors are no slow-down.
    logs[np.abs(logs) < 1e-9] = 0
    reach = max(0.05, float(np.nanmax(logs)))
    depth = max(0.05, float(-np.nanmin(logs)))
    norm = TwoSlopeNorm(0, vmin=-depth, vmax=reach)
    image = axes.pcolormesh(
        _edges(latencies), _edges(acceptances), logs, cmap="PiYG", norm=norm, rasterized=True
    )
    axes.set_xlabel("drafter latency (target = 1)", fontsize=12)
    axes.set_ylabel("acceptance rate", fontsize=12)
    bar = figure.colorbar(image, ax=axes)
    ticks = [tick for tick in _TICKS if -depth <= np.log(tick) <= reach]
    bar.set_ticks([float(np.log(tick)) for tick in ticks], labels=[f"{t:g}×" for t in ticks])
    bar.ax.minorticks_off()
    if np.nanmin(logs) >= 0:
        bar.ax.set_ylim(0, reach)


def _edges(centres: Sequence[float]) -> NDArray[np.float64]:
    half = (centres[1] - centres[0]) / 2
    return np.array([*(centre - half for centre in centres), centres[-1] + half])


def throughput_curves(points: Sequence[Point], ratio: float, path: Path) -> None:
    """Figures 5 to 7 of branch prediction: tokens/s by n, closed forms and the virtual clock."""
    figure = Figure(figsize=(16, 5.5), layout="constrained")
    with_bp, without, both = figure.subplots(1, 3, sharey=True)
    for index, alpha in enumerate(sorted({point.alpha for point in points})):
        row = [point for point in points if point.alpha == alpha]
        n = [point.n for point in row]
        colour = f"C{index}"
        curves = (
            ([p.branch_closed for p in row], [p.branch_clock for p in row], "-", "o", "BP"),
            ([p.si_closed for p in row], [p.si_clock for p in row], "--", "x", "non-BP"),
        )
        for axes, (closed, clock, line, mark, name) in zip((with_bp, without), curves, strict=True):
            axes.plot(n, closed, line, color=colour, label=f"{name}, α = {alpha:g}")
            axes.plot(n, clock, mark, color=colour, markersize=5)
            both.plot(n, closed, line, color=colour, label=f"{name}, α = {alpha:g}")
    titles = (
        "Figure 5: with branch prediction",
        "Figure 6: without (speculative sampling)",
        "Figure 7: both (closed forms)",
    )
    for axes, title in zip((with_bp, without, both), titles, strict=True):
        axes.axvline(ratio, color="grey", linewidth=1)
        axes.set_title(title, fontsize=13)
        axes.set_xlabel("n, tokens drafted in a round (bar: ⌈T/t⌉)", fontsize=12)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=9, ncols=2)
    with_bp.set_ylabel("tokens/s (lines: closed form; marks: virtual clock)", fontsize=12)
    figure.savefig(path, dpi=110)


def write_csv(rows: Sequence[Mapping[str, object]], path: Path) -> None:
    """Rows of like keys, with a header."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
