"""Latency objectives, and the check whether a request met them."""

from __future__ import annotations

from dataclasses import dataclass

from specmesh.load.transports.observation import Observation, RequestOutcome
from specmesh.load.workload.durations import seconds


@dataclass(frozen=True, slots=True)
class Objectives:
    """Upper bounds in seconds; None means no bound."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def met_by(self, seen: Observation) -> bool:
        """Return whether an answer came within all bounds. An answer of a single token has no time
        per output token, so it meets any bound on that. An answer without a token is none that a
        user has seen begin, so it misses a bound on the first token, although it is no failure."""
        if seen.outcome is not RequestOutcome.ANSWERED:
            return False
        if self.ttft_s is not None and seen.ttft_s is None:
            return False
        times = (
            (self.ttft_s, seen.ttft_s),
            (self.tpot_s, seen.tpot_s),
            (self.e2e_s, seen.e2e_s),
        )
        return all(bound is None or took is None or took <= bound for bound, took in times)


def objectives(text: str) -> Objectives:
    """Parse objectives such as ``ttft=200ms,tpot=50ms,e2e=2s``. Raises ValueError."""
    bounds: dict[str, float] = {}
    for each in text.split(","):
        name, _, value = each.strip().partition("=")
        if name not in {"ttft", "tpot", "e2e"}:
            raise ValueError(f"{name!r} is not an objective; the objectives are ttft, tpot and e2e")
        if f"{name}_s" in bounds:
            raise ValueError(f"{name} is given twice")
        bounds[f"{name}_s"] = seconds(value)
    return Objectives(**bounds)
