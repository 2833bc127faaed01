"""The report on calibrated trees, as text in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from specmesh.tools.kit.tables import make_table

SHOWN_WIDTHS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class CalibratedTreeRow:
    """Acceptance lengths at one width: mean tokens per verification, the target's own included."""

    text: str
    """Either ``calibration`` or ``held-out``."""
    temperature: float
    width: int
    expected: float
    """Length of the calibrated tree, predicted from accuracies on the calibration text."""
    calibrated: float
    chain: float
    random: float
    """Mean over several random trees."""


def show(rows: Sequence[CalibratedTreeRow], console: Console) -> None:
    """Print a table for each text and temperature, with some of the widths."""
    headings = ("expected", "calibrated", "chain", "random")
    for text, temperature in dict.fromkeys((row.text, row.temperature) for row in rows):
        table = make_table(
            f"Acceptance length on {text} text, temperature {temperature:g}", "width", *headings
        )
        for row in rows:
            if (row.text, row.temperature) == (text, temperature) and row.width in SHOWN_WIDTHS:
                lengths = (getattr(row, heading) for heading in headings)
                table.add_row(str(row.width), *(f"{length:.2f}" for length in lengths))
        console.print(table)
