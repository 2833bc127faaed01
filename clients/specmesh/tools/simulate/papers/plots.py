"""The experiments' pictures and CSV files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from specmesh.tools.simulate.papers.branch_figures import CurvePoint
from specmesh.tools.simulate.papers.offline import TOLERANCE, Cell
from specmesh.tools.simulate.papers.speedups import SPEEDUPS

_TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)
_FINE_TICKS = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2)


def heat_maps(cells: Sequence[Cell], num_tokens: int, path: Path) -> None:
    """Draw Figure 2 of DSI: four speed-ups over drafter latency and acceptance, pink below 1."""
    figure = Figure(figsize=(12, 10), layout="constrained")
    figure.suptitle(
        f"Speed-up for {num_tokens} tokens, each at its best lookahead, DSI with SP = 7 "
        "(pink: slower)",
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
        index = acceptances.index(cell.acceptance), latencies.index(cell.drafter_latency)
        logs[index] = np.log(speedup(cell))
    logs[np.abs(logs) < TOLERANCE] = 0  # Rounding errors are not slow-downs.
    reach = max(0.05, float(np.nanmax(logs)))
    depth = max(0.05, float(-np.nanmin(logs)))
    norm = TwoSlopeNorm(0, vmin=-depth, vmax=reach)
    image = axes.pcolormesh(
        _edges(latencies), _edges(acceptances), logs, cmap="PiYG", norm=norm, rasterized=True
    )
    axes.set_xlabel("drafter latency (target = 1)", fontsize=12)
    axes.set_ylabel("acceptance rate", fontsize=12)
    bar = figure.colorbar(image, ax=axes)
    fine = np.exp(reach) <= _FINE_TICKS[-1]
    ticks = [tick for tick in (_FINE_TICKS if fine else _TICKS) if -depth <= np.log(tick) <= reach]
    bar.set_ticks([float(np.log(tick)) for tick in ticks], labels=[f"{t:g}×" for t in ticks])
    bar.ax.minorticks_off()
    bar.set_label("times as fast", fontsize=11)
    if np.nanmin(logs) >= 0:
        bar.ax.set_ylim(0, reach)


def _edges(centres: Sequence[float]) -> NDArray[np.float64]:
    half = (centres[1] - centres[0]) / 2
    return np.array([*(centre - half for centre in centres), centres[-1] + half])


def throughput_curves(points: Sequence[CurvePoint], least_n: int, path: Path) -> None:
    """Draw Figures 5 to 7 of branch prediction: tokens/s by n, closed forms and the virtual clock.

    The closed form of branch prediction holds, and is drawn, from ``least_n`` on.
    """
    figure = Figure(figsize=(16, 5.5), layout="constrained")
    with_bp, without, both = figure.subplots(1, 3, sharey=True)
    for index, alpha in enumerate(sorted({point.alpha for point in points}, reverse=True)):
        row = [point for point in points if point.alpha == alpha]
        n, colour, label = [point.n for point in row], f"C{index}", f"α = {alpha:g}"
        branch, single = [p.branch_clock for p in row], [p.si_clock for p in row]
        hidden = [point for point in row if point.n >= least_n]
        with_bp.plot([p.n for p in hidden], [p.branch_closed for p in hidden], color=colour)
        with_bp.plot(n, branch, "o", color=colour, markersize=5, label=label)
        without.plot(n, [p.si_closed for p in row], color=colour)
        without.plot(n, single, "x", color=colour, markersize=6, label=label)
        both.plot(n, branch, "o-", color=colour, markersize=5, label=f"BP, {label}")
        both.plot(n, single, "x--", color=colour, markersize=6, label=f"non-BP, {label}")
    titles = (
        "Figure 5: with branch prediction (BP)",
        "Figure 6: without (non-BP)",
        "Figure 7: both, on the virtual clock",
    )
    for axes, title in zip((with_bp, without, both), titles, strict=True):
        axes.axvline(least_n, color="grey", linewidth=1)
        axes.set_title(title, fontsize=13)
        axes.set_xlabel("n, tokens drafted in a round (bar: ⌈T/t⌉)", fontsize=12)
        axes.set_ylim(0, 1.3 * max(point.branch_clock for point in points))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=9, ncols=3, loc="upper center")
    with_bp.set_ylabel("tokens/s (lines: closed form; marks: virtual clock)", fontsize=12)
    figure.savefig(path, dpi=110)


def write_csv(rows: Sequence[Mapping[str, object]], path: Path) -> None:
    """Write rows, which all have the same keys, with a header."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
