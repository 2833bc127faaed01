"""The table of results, in 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from specmesh.bench.mesh.summary import RowSummary


def table(rows: Sequence[RowSummary]) -> Table:
    """Seconds of an answer by strategy, and what the mesh adds to DSI's."""
    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title="Seconds of an answer; target and drafter wait instead of computing",
        title_justify="left",
        caption="In brackets the lookahead. Tax: DSI's time over the virtual clock's.",
        caption_justify="left",
    )
    made.add_column("target\ndataset", no_wrap=True)
    for heading in ("non-SI", "SI", "DSI", "branch\npred.", "SI/\nDSI", "tax"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("same\ntext")
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
