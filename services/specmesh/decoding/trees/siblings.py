"""How sure a drafter is of each of several children of one node, which exclude each other."""

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
    """The confidence that each of ``children``, in the order they are tried, is the accepted one if
    their parent is accepted.

    Greedy and coupled: the drafter's probability of the token (see ``confidence``); without any
    ``choices`` the first counts as sure and the others as ``UNSEEN``. Rejection (with the
    ``distribution`` they were drawn from): a child is tried only once those before it have been
    rejected, so its confidence, under what is left of the distribution without them, counts with
    the share that their confidences leave.
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
    """What ``sibling_confidences`` of the children drawn from ``distribution`` are expected to be,
    one for each that can be drawn; they never rise.

    They know nothing of the tokens drawn, so in rejection mode they may decide how many children
    there are (see ``orchestrator/strategies/base.py``). The first is Σ q(x) D(q(x)), where D(q(x))
    is the confidence in a token drawn with probability q(x). For each later one the likeliest token
    left stands for the one drawn before it, and the sum over the rest counts with the share that
    the earlier ones leave.
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
    """``DRAWN`` of each."""
    return np.array([DRAWN(each) for each in probabilities.tolist()])
