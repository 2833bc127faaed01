"""A drafter's confidence in each of several children of one node, which exclude each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.drafting import DRAWN, UNSEEN, TopK
from specmesh.decoding.sampling import Distribution


def sibling_confidences(
    children: Sequence[int], choices: TopK | None, distribution: Distribution | None
) -> tuple[float, ...]:
    """Return the confidence, for each of ``children`` in the order they are tried, that it is the
    accepted one if their parent is accepted.

    Greedy and coupled: the drafter's probability of the token (see ``confidence``); without any
    ``choices`` the first counts as certain and the others as ``UNSEEN``. Rejection (with the
    ``distribution`` they were drawn from): a child is tried only once those before it have been
    rejected. So its confidence, under the distribution without them, is multiplied by the share
    that their confidences leave.
    """
    if distribution is None:
        if choices is None:
            return (1.0, *[UNSEEN] * (len(children) - 1))[: len(children)]
        listed = dict(zip(choices.token_ids, choices.probabilities, strict=True))
        return tuple(listed.get(child, UNSEEN) for child in children)
    probabilities = dict(
        zip(distribution.token_ids.tolist(), distribution.probabilities.tolist(), strict=True)
    )
    confidences, untried, mass = [], 1.0, 1.0
    for child in children:
        held = probabilities.get(child, 0.0)
        sure = DRAWN(min(1.0, held / mass)) if held and mass > 0 else UNSEEN
        confidences.append(untried * sure)
        untried *= 1 - sure
        mass -= held
    return tuple(confidences)


def expected_confidences(distribution: Distribution) -> Iterator[float]:
    """Yield the expected ``sibling_confidences`` of children drawn from ``distribution``, one for
    each child that can be drawn; they never rise.

    They don't depend on the drawn tokens, so in rejection mode they may determine the number of
    children (see ``orchestrator/strategies/base.py``). The first is Σ q(x) D(q(x)), where D(q(x))
    is the confidence in a token drawn with probability q(x). For each later one, the likeliest
    remaining token stands for the one drawn before it, and the sum over the rest is multiplied by
    the share that the earlier ones leave.
    """
    left = np.sort(distribution.probabilities)[::-1]
    expected, untried = 1.0, 1.0
    while left.size:
        drawn_with = left / left.sum()
        sure = float(np.einsum("i,i", drawn_with, _drawn(drawn_with)))
        expected = min(expected, untried * sure)
        yield expected
        untried *= 1 - sure
        left = left[1:]


def _drawn(probabilities: NDArray[np.float64]) -> NDArray[np.floating[Any]]:
    """Return ``DRAWN`` of each probability."""
    return np.array([DRAWN(each) for each in probabilities.tolist()])
