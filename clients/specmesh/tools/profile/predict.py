"""How many tokens a second a way of decoding yields, and what follows for an orchestrator from how
many rounds it made."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

from specmesh.tools.profile import play
from specmesh.tools.profile.costs import (
    MANY,
    MeshCosts,
    ObservedRounds,
    Orchestrating,
    ProfiledAcceptance,
    Way,
)

CONTEXT: Final = 128
"""Tokens that answers have before them on average, if nobody says otherwise."""
_HALVINGS: Final = 12
_PRIOR_TRIES: Final = 2
"""So many tries tell as much of a way as the times of its steps do: on two cores one try, and what
follows from the steps, are off by some 5 and 4 per cent."""


def tokens_per_s(
    acceptance: ProfiledAcceptance, costs: MeshCosts, streams: int, context: float
) -> float:
    """Tokens a second of ``streams`` answers together, at a mean ``context`` of so many tokens, by
    the times of their steps."""
    return acceptance.tokens * rounds_per_s(acceptance, costs, streams, context)


def rounds_per_s(
    acceptance: ProfiledAcceptance, costs: MeshCosts, streams: int, context: float
) -> float:
    """Rounds a second of ``streams`` answers together, by the times of their steps."""
    ms = costs.orchestrating_ms(acceptance.way.strategy, streams)
    return play.rounds_per_s(acceptance, costs, streams, context, ms)


class Corrections:
    """By what factor ``acceptances`` make more rounds a second than follows from the times of their
    steps.

    A strategy's is the mean over its ways that were observed, each as often as it was tried; if
    none was, over those of all strategies. A way's own counts as much as it has tries, and its
    strategy's as much as ``_PRIOR_TRIES``: who leads or trails after a few owes it to luck, too.
    """

    def __init__(self, acceptances: Iterable[ProfiledAcceptance], costs: MeshCosts) -> None:
        known = {(each.way, each.temperature): each for each in acceptances}
        self._own: dict[tuple[Way, float, int], _Mean] = defaultdict(_Mean)
        self._of_strategy: dict[tuple[str, float, int], _Mean] = defaultdict(_Mean)
        self._of_all: dict[tuple[float, int], _Mean] = defaultdict(_Mean)
        for each in costs.observed:
            acceptance = known.get((each.way, each.temperature))
            if acceptance is None:
                continue
            factor = each.rounds_per_s / rounds_per_s(acceptance, costs, each.streams, CONTEXT)
            load = each.temperature, each.streams
            for mean in (
                self._own[each.way, *load],
                self._of_strategy[each.way.strategy, *load],
                self._of_all[load],
            ):
                mean.add(factor, each.tries)

    def factor(self, acceptance: ProfiledAcceptance, streams: int) -> float:
        """With so many streams; in between one and ``MANY`` on a line."""
        one, many = (self._at(acceptance, each) for each in (1, MANY))
        return one + min(1.0, (streams - 1) / (MANY - 1)) * (many - one)

    def observed(self, acceptance: ProfiledAcceptance) -> bool:
        """Whether it was tried, with any number of streams."""
        own = (acceptance.way, acceptance.temperature)
        return any((*own, streams) in self._own for streams in (1, MANY))

    def _at(self, acceptance: ProfiledAcceptance, streams: int) -> float:
        way, load = acceptance.way, (acceptance.temperature, streams)
        usual = self._of_strategy.get((way.strategy, *load)) or self._of_all.get(load)
        if usual is None:
            return 1.0
        weighed = _Mean()
        weighed.add(usual.value, _PRIOR_TRIES)
        own = self._own.get((way, *load))
        if own is not None:
            weighed.add(own.value, own.weight)
        return weighed.value


class _Mean:
    """A geometric mean."""

    def __init__(self) -> None:
        self.weight = 0
        self._sum = 0.0

    def add(self, factor: float, weight: int) -> None:
        self.weight += weight
        self._sum += weight * math.log(factor)

    @property
    def value(self) -> float:
        return math.exp(self._sum / self.weight)


def orchestrating(
    costs: MeshCosts, observed: Sequence[tuple[ProfiledAcceptance, ObservedRounds]], context: float
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
    costs: MeshCosts, acceptance: ProfiledAcceptance, observed: ObservedRounds, context: float
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
