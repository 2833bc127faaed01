"""Objectives of latency, and whether a request met them."""

from __future__ import annotations

from dataclasses import dataclass

from specmesh.load.transports.observation import Observation, RequestOutcome
from specmesh.load.workload.durations import seconds


@dataclass(frozen=True, slots=True)
class Objectives:
    """Upper bounds in seconds; None where there is none."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def met_by(self, seen: Observation) -> bool:
        """Whether an answer came, within all bounds. One of a single token has no time per
        output token, and so meets any."""
        if seen.outcome is not RequestOutcome.ANSWERED:
            return False
        times = (
            (self.ttft_s, seen.ttft_s),
            (self.tpot_s, seen.tpot_s),
            (self.e2e_s, seen.e2e_s),
        )
        return all(bound is None or took is None or took <= bound for bound, took in times)


def objectives(text: str) -> Objectives:
    """Those written as ``ttft=200ms,tpot=50ms,e2e=2s``. Raises ValueError."""
    bounds: dict[str, float] = {}
    for each in text.split(","):
        name, _, value = each.strip().partition("=")
        if name not in {"ttft", "tpot", "e2e"}:
            raise ValueError(f"{name!r} is no objective; there are ttft, tpot and e2e")
        bounds[f"{name}_s"] = seconds(value)
    return Objectives(**bounds)
