"""The table of results, in 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from specmesh.bench.mesh.summary import RowSummary
from specmesh.cli.tables import make_table


def table(rows: Sequence[RowSummary]) -> Table:
    """Return a table of the seconds of an answer by strategy, and the overhead of the mesh for
    DSI."""
    made = make_table(
        "Seconds of an answer; target and drafter wait instead of computing",
        *("target\ndataset", "non-SI", "SI", "DSI", "branch\npred.", "SI/\nDSI", "tax"),
        "same\ntext",
        caption="Lookaheads are in brackets. Tax: DSI's time over the virtual clock's.",
    )
    for row in rows:
        made.add_row(
            f"{row.target}\n{row.dataset}",
            f"{row.non_si_s:.3f}",
            f"{row.si_s:.3f} ({row.si_lookahead})",
            f"{row.dsi_s:.3f} ({row.lookahead})",
            f"{row.branch_prediction_s:.3f} ({row.branch_prediction_lookahead})",
            f"{row.dsi_over_si:.2f}",
            f"{row.mesh_tax:.3f}",
            "[green]yes" if row.identical else "[red]NO",
        )
    return made
