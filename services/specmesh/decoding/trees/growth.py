"""The choice of tokens for a drafter's tree: those that are worth verifying.

A node's value is the probability that it is accepted along with all nodes before it: the product of
calibrated probabilities along its path (EAGLE-2, Li et al. 2024). Values only fall along a path. So
the nodes worth at least some threshold are connected, and are the best tree of their size: a tree
that grows by a threshold, level by level, drafts no node that it drops later.

In rejection mode a node's worth must be known before it is drawn. There it is an expectation over
the node's distribution (``expected_confidences``). The drawn token counts only for the nodes below
it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specmesh.decoding.drafting import Drawn, confidence
from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.predict.platt import Platt
from specmesh.decoding.trees.siblings import expected_confidences, sibling_confidences


@dataclass(frozen=True, slots=True)
class TreeGrowth:
    """Limits on a tree: at most ``max_nodes`` (at least 1) nodes, each worth at least
    ``least_worth``, in [0, 1]. The best node of the first level is always included."""

    max_nodes: int
    least_worth: float


@dataclass(frozen=True, slots=True)
class Guess:
    """The drafter's guess after a node that is accepted, along with all nodes before it, with
    probability ``chance``.

    ``drawn`` has as many children as the node may get. Unless it has a distribution, all of them
    are among its choices.
    """

    chance: float
    drawn: Drawn


@dataclass(frozen=True, slots=True)
class Children:
    """The children that a node gets, and their ``chances``."""

    token_ids: tuple[int, ...]
    chances: tuple[float, ...]


def next_level(
    guesses: Sequence[Guess], stop: DraftStop | None, growth: TreeGrowth | None, num_nodes: int
) -> list[Children]:
    """Return the children for each of a level's ``guesses``; ``num_nodes`` nodes were drafted
    before.

    Without ``growth`` all drawn children are returned. ``growth`` needs a ``stop``.
    """
    if growth is None or stop is None:
        return [_all_of(guess, stop) for guess in guesses]
    counts = _num_worth(guesses, stop.acceptance, growth, num_nodes)
    return [
        _first(count, guess, stop.acceptance) for count, guess in zip(counts, guesses, strict=True)
    ]


def is_last(
    level: Sequence[Children], stop: DraftStop | None, growth: TreeGrowth | None, num_nodes: int
) -> bool:
    """Return whether a draft ends with ``level``; ``num_nodes`` were drafted, including those of
    ``level``."""
    if growth is not None and num_nodes >= growth.max_nodes:
        return True
    if stop is None:
        return False
    chances = [chance for children in level for chance in children.chances]
    gain = max(chances, default=0.0) if growth is None else math.fsum(chances)
    return gain < stop.below


def _all_of(guess: Guess, stop: DraftStop | None) -> Children:
    drawn = guess.drawn
    if stop is None:
        return Children(drawn.children, (1.0,) * len(drawn.children))
    sure = [confidence(child, drawn.choices, drawn.distribution) for child in drawn.children]
    return Children(drawn.children, tuple(guess.chance * stop.acceptance(each) for each in sure))


def _first(count: int, guess: Guess, acceptance: Platt) -> Children:
    drawn = guess.drawn
    token_ids = drawn.children[:count]
    sure = sibling_confidences(token_ids, drawn.choices, drawn.distribution)
    return Children(token_ids, tuple(guess.chance * acceptance(each) for each in sure))


def _num_worth(
    guesses: Sequence[Guess], acceptance: Platt, growth: TreeGrowth, num_nodes: int
) -> list[int]:
    """Return the number of children that each guess keeps. In rejection mode no number depends on a
    drawn token."""
    worthy = [
        (-worth, index)
        for index, guess in enumerate(guesses)
        for worth in _worths_from(growth.least_worth, guess, acceptance)
    ]
    if not worthy and not num_nodes:
        firsts = [
            (-worth, index)
            for index, guess in enumerate(guesses)
            for worth in _worths_from(0.0, guess, acceptance)
        ]
        worthy = [min(firsts)] if firsts else []
    counts = [0] * len(guesses)
    for _, index in sorted(worthy)[: growth.max_nodes - num_nodes]:
        counts[index] += 1
    return counts


def _worths_from(least: float, guess: Guess, acceptance: Platt) -> Iterator[float]:
    """Yield the values of a node's children in order, never rising, down to ``least``."""
    drawn = guess.drawn
    if drawn.distribution is None:
        sure: Iterator[float] = iter(sibling_confidences(drawn.children, drawn.choices, None))
    else:
        sure = expected_confidences(drawn.distribution)
    for _, each in zip(drawn.children, sure, strict=False):
        worth = guess.chance * acceptance(each)
        if worth < least:
            return
        yield worth
