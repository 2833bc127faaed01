"""How many tokens a second a way of decoding yields, and what follows for an orchestrator from how
many rounds it made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Final

from specmesh.bench.profile import play
from specmesh.bench.profile.costs import (
    MANY,
    Acceptance,
    MeshCosts,
    Observed,
    Orchestrating,
    Way,
)

CONTEXT: Final = 128
"""Tokens that answers have before them on average, if nobody says otherwise."""
_HALVINGS: Final = 12


def tokens_per_s(acceptance: Acceptance, costs: MeshCosts, streams: int, context: float) -> float:
    """Tokens a second of ``streams`` answers together, at a mean ``context`` of so many tokens, by
    the times of their steps."""
    return acceptance.tokens * rounds_per_s(acceptance, costs, streams, context)


def rounds_per_s(acceptance: Acceptance, costs: MeshCosts, streams: int, context: float) -> float:
    """Rounds a second of ``streams`` answers together, by the times of their steps."""
    ms = costs.orchestrating_ms(acceptance.way.strategy, streams)
    return play.rounds_per_s(acceptance, costs, streams, context, ms)


class Corrections:
    """By what factor ``acceptances`` make more rounds a second than follows from the times of their
    steps. That is known of those that were observed; of others it is what it is of these in the
    median."""

    def __init__(self, acceptances: Iterable[Acceptance], costs: MeshCosts) -> None:
        known = {(each.way, each.temperature): each for each in acceptances}
        self._own: dict[tuple[Way, float, int], float] = {}
        alike: defaultdict[tuple[float, int], list[float]] = defaultdict(list)
        for each in costs.observed:
            acceptance = known.get((each.way, each.temperature))
            if acceptance is None:
                continue
            factor = each.rounds_per_s / rounds_per_s(acceptance, costs, each.streams, CONTEXT)
            self._own[each.way, each.temperature, each.streams] = factor
            alike[each.temperature, each.streams].append(factor)
        self._usual = {load: median(found) for load, found in alike.items()}

    def factor(self, acceptance: Acceptance, streams: int) -> float:
        """With so many streams; in between one and ``MANY`` on a line."""
        one, many = (self._at(acceptance, each) for each in (1, MANY))
        return one + min(1.0, (streams - 1) / (MANY - 1)) * (many - one)

    def observed(self, acceptance: Acceptance) -> bool:
        """Whether it was tried, with any number of streams."""
        own = (acceptance.way, acceptance.temperature)
        return any((*own, streams) in self._own for streams in (1, MANY))

    def _at(self, acceptance: Acceptance, streams: int) -> float:
        usual = self._usual.get((acceptance.temperature, streams), 1.0)
        return self._own.get((acceptance.way, acceptance.temperature, streams), usual)


def orchestrating(
    costs: MeshCosts, observed: Sequence[tuple[Acceptance, Observed]], context: float
) -> tuple[Orchestrating, ...]:
    """What an orchestrator must take for a round of each strategy if all else is as ``costs`` say:
    the mean over what was observed of it with one stream and with many."""
    fitting: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for acceptance, seen in observed:
        key = seen.way.strategy, seen.streams
        fitting[key].append(_fitting_ms(costs, acceptance, seen, context))
    strategies = dict.fromkeys(strategy for strategy, _ in fitting)
    return tuple(
        Orchestrating(each, fmean(fitting[each, 1]), fmean(fitting[each, MANY]))
        for each in strategies
    )


def _fitting_ms(
    costs: MeshCosts, acceptance: Acceptance, observed: Observed, context: float
) -> float:
    """By halving: the more an orchestrator takes, the fewer rounds a second there are."""
    streams = observed.streams
    low, high = 0.0, 1e3 * streams / observed.rounds_per_s
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        found = play.rounds_per_s(acceptance, costs, streams, context, middle)
        if found > observed.rounds_per_s:
            low = middle
        else:
            high = middle
    return low
