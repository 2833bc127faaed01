"""How many tokens a second a way of decoding yields, and what follows for an orchestrator from how
many rounds it made."""

from __future__ import annotations

import math
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
)

CONTEXT: Final = 128
"""Tokens that answers have before them on average, if nobody says otherwise."""
_HALVINGS: Final = 12
_PRIOR_TRIES: Final = 4
"""So many tries tell as much of a way as the times of its steps do: on two cores one try, and what
follows from the steps, are off by 8 and by 4 per cent."""


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
    steps.

    Of those that were not observed it is what it is of others in the median. Of those that were,
    their own factor counts as much as they have tries, and that median as much as
    ``_PRIOR_TRIES``: a way that leads after a few of them owes it to luck, too.
    """

    def __init__(self, acceptances: Iterable[Acceptance], costs: MeshCosts) -> None:
        known = {(each.way, each.temperature): each for each in acceptances}
        found: list[tuple[Observed, float]] = []
        alike: defaultdict[tuple[float, int], list[float]] = defaultdict(list)
        for each in costs.observed:
            acceptance = known.get((each.way, each.temperature))
            if acceptance is None:
                continue
            factor = each.rounds_per_s / rounds_per_s(acceptance, costs, each.streams, CONTEXT)
            found.append((each, factor))
            alike[each.temperature, each.streams].append(factor)
        self._usual = {load: median(factors) for load, factors in alike.items()}
        self._own = {
            (each.way, each.temperature, each.streams): _weighed(
                factor, each.tries, self._usual[each.temperature, each.streams]
            )
            for each, factor in found
        }

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


def _weighed(own: float, tries: int, usual: float) -> float:
    """The geometric mean, by how much each tells."""
    share = tries / (tries + _PRIOR_TRIES)
    return math.exp(share * math.log(own) + (1 - share) * math.log(usual))


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
