"""Which strategy, with which options: the one that a profile expects most tokens a second of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from specmesh.tools.kit.experiment import HEADS, SPECULATIVE, TREE
from specmesh.tools.profile.costs import AUTOREGRESSIVE_ROUND, MeshCosts, ProfiledAcceptance, Way
from specmesh.tools.profile.predict import Corrections, rounds_per_s

LOOKAHEADS = (1, 2, 4, 8)
TREES = ((4, 3), (8, 4), (16, 5), (32, 6))
"""Width and depth."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What to expect of one way of decoding."""

    acceptance: ProfiledAcceptance
    rounds_per_s: float
    """Of all streams together."""
    tokens_per_s: float
    """The same."""
    ratio: float
    """To the target alone."""
    observed: bool
    """Whether it was tried through the orchestrator, as others that lead were."""


def ways(*, drafter: bool, heads_depth: int) -> tuple[Way, ...]:
    """The ways of decoding that are tried, but for the target alone: with a drafter, and with heads
    that draft so deep (0: without)."""
    found: list[Way] = []
    if drafter:
        found += [Way(SPECULATIVE, lookahead) for lookahead in LOOKAHEADS]
        found += [Way(TREE, depth, width) for width, depth in TREES]
    if heads_depth:
        shapes = dict.fromkeys((width, min(depth, heads_depth)) for width, depth in TREES)
        found += [Way(HEADS, depth, width) for width, depth in shapes]
    return tuple(found)


def expectations(
    acceptances: Sequence[ProfiledAcceptance],
    costs: MeshCosts,
    *,
    streams: int,
    temperature: float,
    context: float,
) -> list[Expectation]:
    """What to expect of each way of decoding and of the target alone, the best first; acceptance is
    that of the nearest temperature that was measured."""
    listed = nearest(acceptances, temperature)
    near = listed[0].temperature if listed else temperature
    candidates = [replace(AUTOREGRESSIVE_ROUND, temperature=near), *listed]
    corrections = Corrections(candidates, costs)
    rounds = [
        rounds_per_s(each, costs, streams, context) * corrections.factor(each, streams)
        for each in candidates
    ]
    speeds = [each.tokens * made for each, made in zip(candidates, rounds, strict=True)]
    found = [
        Expectation(each, made, speed, speed / speeds[0], corrections.observed(each))
        for each, made, speed in zip(candidates, rounds, speeds, strict=True)
    ]
    return sorted(found, key=lambda each: each.tokens_per_s, reverse=True)


def nearest(
    acceptances: Iterable[ProfiledAcceptance], temperature: float
) -> list[ProfiledAcceptance]:
    """Those at the temperature nearest to ``temperature``."""
    listed = list(acceptances)
    if not listed:
        return []
    closest = min((each.temperature for each in listed), key=lambda t: abs(t - temperature))
    return [each for each in listed if each.temperature == closest]
