"""The summary of a row's runs."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from specmesh.bench.mesh.measure import MeshRuns
from specmesh.bench.mesh.simulated import ExpectedRow
from specmesh.tools.simulate.papers.table2 import COMPARED


@dataclass(frozen=True, slots=True)
class TwoClocks:
    """The mean seconds of an answer by the wall clock and by the virtual one."""

    strategy: str
    lookahead: int | None
    wall_s: float
    simulated_s: float


@dataclass(frozen=True, slots=True)
class RowSummary:
    """The mean seconds of an answer, with each strategy at its best lookahead.

    As in the paper, DSI may only use one for which its replicas suffice (Equation 1).
    """

    target: str
    drafter: str
    dataset: str
    lookahead: int
    """DSI's lookahead."""
    non_si_s: float
    si_s: float
    si_lookahead: int
    dsi_s: float
    branch_prediction_s: float
    branch_prediction_lookahead: int
    simulated_dsi_s: float
    """The same answers on the virtual clock, at the same lookahead."""
    mesh_tax: float
    """``dsi_s`` over ``simulated_dsi_s``."""
    dsi_over_si: float
    published_dsi_over_si: float
    identical: bool
    num_processes: int
    timings: tuple[TwoClocks, ...]
    """Every strategy at every lookahead."""


def summarise(row: ExpectedRow, measured: MeshRuns) -> RowSummary:
    """Summarise the runs of a row."""
    timings = {
        setting: TwoClocks(*setting, fmean(wall_s), fmean(row.simulated_s[setting]))
        for setting, wall_s in measured.wall_s.items()
    }
    non_si, si, dsi, branch_prediction = (
        timings[row.best(strategy, measured.wall_s)] for strategy in COMPARED
    )
    return RowSummary(
        target=row.published.target,
        drafter=row.published.drafter,
        dataset=row.published.dataset,
        lookahead=dsi.lookahead or 0,
        non_si_s=non_si.wall_s,
        si_s=si.wall_s,
        si_lookahead=si.lookahead or 0,
        dsi_s=dsi.wall_s,
        branch_prediction_s=branch_prediction.wall_s,
        branch_prediction_lookahead=branch_prediction.lookahead or 0,
        simulated_dsi_s=dsi.simulated_s,
        mesh_tax=dsi.wall_s / dsi.simulated_s,
        dsi_over_si=si.wall_s / dsi.wall_s,
        published_dsi_over_si=row.published.published_dsi_over_si,
        identical=measured.identical,
        num_processes=measured.num_processes,
        timings=tuple(timings.values()),
    )
