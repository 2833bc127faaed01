"""What a row's runs say."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from specmesh.cli.table2.measure import Measured
from specmesh.cli.table2.simulated import Row, Setting


@dataclass(frozen=True, slots=True)
class RowSummary:
    """Mean seconds of an answer, each strategy at the lookahead that was best for it."""

    target: str
    drafter: str
    dataset: str
    lookahead: int
    """DSI's."""
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


def summarise(row: Row, measured: Measured) -> RowSummary:
    """The row of the table."""

    def best(strategy: str) -> tuple[float, int, Setting]:
        times = {s: fmean(each) for s, each in measured.wall_s.items() if s[0] == strategy}
        setting = min(times, key=lambda s: times[s])
        return times[setting], setting[1] or 0, setting

    non_si_s, _, _ = best("autoregressive")
    si_s, si_lookahead, _ = best("speculative")
    dsi_s, dsi_lookahead, dsi = best("dsi")
    branch_prediction_s, branch_prediction_lookahead, _ = best("branch-prediction")
    simulated_dsi_s = fmean(row.simulated_s[dsi])
    return RowSummary(
        target=row.target,
        drafter=row.drafter,
        dataset=row.dataset,
        lookahead=dsi_lookahead,
        non_si_s=non_si_s,
        si_s=si_s,
        si_lookahead=si_lookahead,
        dsi_s=dsi_s,
        branch_prediction_s=branch_prediction_s,
        branch_prediction_lookahead=branch_prediction_lookahead,
        simulated_dsi_s=simulated_dsi_s,
        mesh_tax=dsi_s / simulated_dsi_s,
        dsi_over_si=si_s / dsi_s,
        published_dsi_over_si=row.published_dsi_over_si,
        identical=measured.identical,
        num_processes=measured.num_processes,
    )
