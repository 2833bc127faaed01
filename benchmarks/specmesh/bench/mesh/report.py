"""The table of results, in 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from specmesh.bench.mesh.summary import RowSummary
from specmesh.tools.kit.tables import same, table_of


def table(rows: Sequence[RowSummary]) -> Table:
    """Return a table of the seconds of an answer by strategy, and the overhead of the mesh for
    DSI."""
    return table_of(
        "Seconds of an answer; target and drafter wait instead of computing",
        rows,
        (
            ("target\ndataset", lambda row: f"{row.target}\n{row.dataset}"),
            ("non-SI", lambda row: f"{row.non_si_s:.3f}"),
            ("SI", lambda row: f"{row.si_s:.3f} ({row.si_lookahead})"),
            ("DSI", lambda row: f"{row.dsi_s:.3f} ({row.lookahead})"),
            (
                "branch\npred.",
                lambda row: f"{row.branch_prediction_s:.3f} ({row.branch_prediction_lookahead})",
            ),
            ("SI/\nDSI", lambda row: f"{row.dsi_over_si:.2f}"),
            ("tax", lambda row: f"{row.mesh_tax:.3f}"),
            ("same\ntext", lambda row: same(identical=row.identical)),
        ),
        caption="Lookaheads are in brackets. Tax: DSI's time over the virtual clock's.",
    )
