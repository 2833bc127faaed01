"""How many tokens a second a way of decoding yields, and what follows for an orchestrator from how
many rounds it made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from specmesh.bench.profile.costs import MANY, Acceptance, MeshCosts, Orchestrating
from specmesh.bench.profile.play import rounds_per_s

_HALVINGS: Final = 12


def tokens_per_s(acceptance: Acceptance, costs: MeshCosts, streams: int, context: float) -> float:
    """Tokens a second of ``streams`` answers together, at a mean ``context`` of so many tokens."""
    ms = costs.orchestrating_ms(acceptance.way.strategy, streams)
    return acceptance.tokens * rounds_per_s(acceptance, costs, streams, context, ms)


@dataclass(frozen=True, slots=True)
class Observed:
    """How many rounds a second a way of decoding made through an orchestrator, all streams
    together."""

    acceptance: Acceptance
    streams: int
    """One or ``MANY``."""
    rounds_per_s: float


def orchestrating(
    costs: MeshCosts, observed: Sequence[Observed], context: float
) -> tuple[Orchestrating, ...]:
    """What an orchestrator must take for a round of each strategy if all else is as ``costs`` say:
    the mean over what was observed of it with one stream and with many."""
    fitting: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for each in observed:
        key = each.acceptance.way.strategy, each.streams
        fitting[key].append(_fitting_ms(costs, each, context))
    strategies = dict.fromkeys(strategy for strategy, _ in fitting)
    return tuple(
        Orchestrating(each, fmean(fitting[each, 1]), fmean(fitting[each, MANY]))
        for each in strategies
    )


def _fitting_ms(costs: MeshCosts, observed: Observed, context: float) -> float:
    """By halving: the more an orchestrator takes, the fewer rounds a second there are."""
    streams = observed.streams
    low, high = 0.0, 1e3 * streams / observed.rounds_per_s
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        found = rounds_per_s(observed.acceptance, costs, streams, context, middle)
        if found > observed.rounds_per_s:
            low = middle
        else:
            high = middle
    return low
