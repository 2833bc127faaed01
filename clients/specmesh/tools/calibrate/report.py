"""The report on a calibration, as text in 80 columns and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from specmesh.decoding.predict.calibration import Reliability
from specmesh.tools.calibrate.judged import KEPT_SHARES, JudgedFit
from specmesh.tools.kit.tables import make_table

_BAR_CELLS = 20


def as_json(judged: JudgedFit) -> dict[str, Any]:
    """Return the fit as a JSON object; ``ece`` is the expected calibration error."""
    return {
        "places": judged.num_positions,
        "agreed": judged.agreed,
        "reliability": asdict(judged.reliability),
        "ece": judged.reliability.ece,
        "ece_by_temperature": {f"{t:g}": each.ece for t, each in judged.by_temperature.items()},
        "agreed_of_kept": {
            name: {f"{share:g}": agreed for share, agreed in shares.items()}
            for name, shares in judged.agreed_of_kept.items()
        },
    }


def show(judged: JudgedFit, num_fitted: int, console: Console) -> None:
    """Print the fit as tables."""
    console.print(
        f"Fitted on {num_fitted} positions; on {judged.num_positions} others, where the target "
        f"agreed {judged.agreed:.1%} of the time:",
        highlight=False,
    )
    console.print(_diagram(judged.reliability))
    errors = ", ".join(
        f"{each.ece:.4f} at temperature {t:g}" for t, each in judged.by_temperature.items()
    )
    console.print(
        f"Expected calibration error {judged.reliability.ece:.4f}; {errors}", highlight=False
    )
    console.print(_kept_table(judged))


def _diagram(reliability: Reliability) -> Table:
    table = make_table(
        "Probability that the target agrees", "predicted", "positions", "mean", "agreed"
    )
    table.add_column("")
    for each in reliability.bins:
        table.add_row(
            f"{each.lower:.1f} to {each.upper:.1f}",
            str(each.count),
            f"{each.mean_score:.3f}",
            f"{each.agreed:.3f}",
            "#" * round(each.agreed * _BAR_CELLS),
        )
    return table


def _kept_table(judged: JudgedFit) -> Table:
    headings = (f"{share:.0%} kept" for share in KEPT_SHARES)
    table = make_table(
        "Share of the kept positions at which the target agreed", "scorer", *headings
    )
    for name, shares in judged.agreed_of_kept.items():
        table.add_row(name, *(f"{agreed:.1%}" for agreed in shares.values()))
    return table
