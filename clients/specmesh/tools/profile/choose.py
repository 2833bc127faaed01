"""The choice of strategy and options: those with the most expected tokens per second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from specmesh.tools.kit.experiment import HEADS, SPECULATIVE, TREE
from specmesh.tools.profile.predict import Corrections, rounds_per_s
from specmesh.tools.profile.rounds import (
    AUTOREGRESSIVE_ROUND,
    ProfiledAcceptance,
    ProfiledCosts,
    Way,
)

LOOKAHEADS = (1, 2, 4, 8)
TREES = ((4, 3), (8, 4), (16, 5), (32, 6))
"""Pairs of width and depth."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected performance of one way of decoding."""

    acceptance: ProfiledAcceptance
    rounds_per_s: float
    """Total of all streams."""
    tokens_per_s: float
    """Total of all streams."""
    ratio: float
    """Ratio to the target alone."""
    observed: bool
    """True if it was tried through the orchestrator, as the leading candidates are."""


def ways(*, drafter: bool, heads_depth: int) -> tuple[Way, ...]:
    """Return the ways of decoding to try, other than the target alone: those with a drafter, and
    those with heads that draft ``heads_depth`` levels (0 without heads)."""
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
    costs: ProfiledCosts,
    *,
    streams: int,
    temperature: float,
    context: float,
) -> list[Expectation]:
    """Return the expectations for each way of decoding and for the target alone, the best first.
    Acceptance is that of the nearest measured temperature."""
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
    """Return those at the temperature nearest to ``temperature``."""
    listed = list(acceptances)
    if not listed:
        return []
    closest = min((each.temperature for each in listed), key=lambda t: abs(t - temperature))
    return [each for each in listed if each.temperature == closest]
