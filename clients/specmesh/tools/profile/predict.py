"""The tokens per second of ways of decoding, and the orchestrator's time that follows from observed
rounds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

from specmesh.simulation.costs import MANY, MeshCosts, Orchestrating
from specmesh.tools.profile import play
from specmesh.tools.profile.rounds import ObservedRounds, ProfiledAcceptance, ProfiledCosts, Way

CONTEXT: Final = 128
"""Default of the mean number of tokens before the next one."""
_HALVINGS: Final = 12
_PRIOR_TRIES: Final = 2
"""Weight of the prediction from step times, in tries: on two cores the errors of one try and of
such a prediction are about 5 and 4 per cent."""


def tokens_per_s(
    acceptance: ProfiledAcceptance, costs: MeshCosts, streams: int, context: float
) -> float:
    """Return the total tokens per second of ``streams`` answers at a mean ``context`` in tokens, by
    the times of their steps."""
    return acceptance.tokens * rounds_per_s(acceptance, costs, streams, context)


def rounds_per_s(
    acceptance: ProfiledAcceptance, costs: MeshCosts, streams: int, context: float
) -> float:
    """Return the total rounds per second of ``streams`` answers, by the times of their steps."""
    ms = costs.orchestrating_ms(acceptance.way.strategy, streams)
    return play.rounds_per_s(acceptance, costs, streams, context, ms)


class Corrections:
    """The factors by which ``acceptances`` make more rounds per second than the times of their
    steps predict.

    The factor of a strategy is the mean over its observed ways, weighted by tries; if there are
    none, the mean over those of all strategies. A way's own factor counts by its tries, and its
    strategy's counts as ``_PRIOR_TRIES``, because leading or trailing after a few tries is also due
    to chance.
    """

    def __init__(self, acceptances: Iterable[ProfiledAcceptance], costs: ProfiledCosts) -> None:
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
        """Return the factor with that many streams, interpolated between one and ``MANY``."""
        one, many = (self._at(acceptance, each) for each in (1, MANY))
        return one + min(1.0, (streams - 1) / (MANY - 1)) * (many - one)

    def observed(self, acceptance: ProfiledAcceptance) -> bool:
        """Return whether it was tried, with any number of streams."""
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
    costs: MeshCosts,
    observed: Sequence[tuple[ProfiledAcceptance, ObservedRounds]],
    context: float,
) -> tuple[Orchestrating, ...]:
    """Return the orchestrator's time per round of each strategy that explains the observed rounds,
    given ``costs``. It is the mean over the observations of a strategy with one stream and with
    many."""
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
    """Find the time by bisection: the more an orchestrator takes, the fewer rounds per second there
    are."""
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
