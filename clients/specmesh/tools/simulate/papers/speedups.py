"""The comparisons of DSI's Figure 2: speed-ups, their extremes, and where those are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from specmesh.tools.simulate.papers.offline import TOLERANCE, Cell

SPEEDUPS: Mapping[str, Callable[[Cell], float]] = {
    "SI over non-SI": lambda cell: cell.non_si / cell.si.time,
    "DSI over SI": lambda cell: cell.si.time / cell.dsi.time,
    "DSI over non-SI": lambda cell: cell.non_si / cell.dsi.time,
    "DSI over the faster of SI and non-SI": lambda cell: cell.baseline / cell.dsi.time,
}
"""The second's time over the first's; DSI uses at most 7 replicas at any lookahead."""

SPEEDUPS_UNDER_EQ1: Mapping[str, Callable[[Cell], float]] = {
    "DSI under Eq. 1 over SI": lambda cell: cell.si.time / cell.dsi_eq1.time,
    "DSI under Eq. 1 over non-SI": lambda cell: cell.non_si / cell.dsi_eq1.time,
    "DSI over SI, both under Eq. 1": lambda cell: cell.si_eq1.time / cell.dsi_eq1.time,
}
"""Comparisons under Equation 1, which forbids a fast drafter the small lookaheads SI may take."""


def cell_dict(cell: Cell) -> dict[str, float]:
    """Return every column, for CSV and JSON. Times are in forwards of the target."""
    return {
        "drafter_latency": cell.drafter_latency,
        "acceptance": cell.acceptance,
        "non_si": cell.non_si,
        "si": cell.si.time,
        "si_lookahead": cell.si.lookahead,
        "si_eq1": cell.si_eq1.time,
        "si_eq1_lookahead": cell.si_eq1.lookahead,
        "dsi_eq1": cell.dsi_eq1.time,
        "dsi_eq1_lookahead": cell.dsi_eq1.lookahead,
        "dsi": cell.dsi.time,
        "dsi_lookahead": cell.dsi.lookahead,
        **{
            name.replace("-", "_").replace(" ", "_").lower(): each(cell)
            for name, each in SPEEDUPS.items()
        },
    }


def summary(cells: Sequence[Cell]) -> dict[str, dict[str, object]]:
    """Return for each comparison its extremes, where they are, and the number of cells that are
    slower."""
    return {
        name: _extremes(cells, speedup)
        for name, speedup in {**SPEEDUPS, **SPEEDUPS_UNDER_EQ1}.items()
    }


def _extremes(cells: Sequence[Cell], speedup: Callable[[Cell], float]) -> dict[str, object]:
    least, most = min(cells, key=speedup), max(cells, key=speedup)
    return {
        "min": speedup(least),
        "min_at": [least.drafter_latency, least.acceptance],
        "max": speedup(most),
        "max_at": [most.drafter_latency, most.acceptance],
        "num_cells_slower": sum(speedup(cell) < 1 - TOLERANCE for cell in cells),
    }
