"""The tables of results, in 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from specmesh.bench.crowd.real import RealSpeed
from specmesh.bench.crowd.summary import Compared, Regret, StrategyRatios
from specmesh.tools.kit.tables import table_of

WORST_CELLS = 10
"""Cells in the table of the worst ones."""


def real_table(speeds: Sequence[RealSpeed]) -> Table:
    """Return a table of the times of a token in real processes."""
    return table_of(
        "Concurrent answers in real processes; a forward takes 40 ms whatever it computes",
        speeds,
        (
            ("strategy", lambda each: each.strategy),
            ("answers", lambda each: str(each.answers)),
            ("ms/token", lambda each: f"{each.ms_per_token:.1f}"),
            ("of one's", lambda each: f"{each.ratio:.2f}x"),
        ),
    )


def ratios_table(ratios: Sequence[StrategyRatios], num_cells: int) -> Table:
    """Return a table of the strategies against the target alone."""
    return table_of(
        f"Tokens per second over the target alone, {num_cells} simulated cells",
        ratios,
        (
            ("strategy", lambda each: each.strategy),
            ("worst", lambda each: f"{each.worst:.2f}x"),
            ("mean", lambda each: f"{each.mean:.2f}x"),
            ("cells slower", lambda each: f"{each.slower:.0%}"),
        ),
    )


def worst_table(compared: Sequence[Compared]) -> Table:
    """Return a table of the cells with the worst ratios, which come first in ``compared``."""
    return table_of(
        "The worst cells",
        compared[:WORST_CELLS],
        (
            ("strategy", lambda each: each.strategy),
            ("target", lambda each: each.cell.forward),
            ("acceptance", lambda each: f"{each.cell.acceptance:g}"),
            ("t/T", lambda each: f"{each.cell.cost:g}"),
            ("answers", lambda each: str(each.cell.answers)),
            ("replicas", lambda each: str(each.cell.replicas)),
            ("over alone", lambda each: f"{each.ratio:.2f}x"),
        ),
    )


def describe_regret(regret: Regret) -> str:
    """Describe what the automatic choice costs; empty if there is none."""
    if regret.mean is None or regret.worst is None:
        return ""
    return (
        f"auto is slower than the best strategy by {regret.mean:.1%} on average, and by "
        f"{regret.worst:.1%} in the worst cell."
    )
