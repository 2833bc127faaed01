"""Which outcomes of a verification to draft on: pairs of how many tokens stand and what follows.

Duan et al. 2024 predict only how many; but where a token is rejected another stands in its
place, which must be guessed as well (see the notes on the paper in docs/papers.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.drafting import UNSEEN, confidence
from specmesh.decoding.tree import TokenTree
from specmesh.orchestrator.strategies.kit.draft_chain import DraftChain


@dataclass(frozen=True, slots=True)
class Branch:
    """An outcome: the first ``num_accepted`` tokens stand, then the target says ``guess``.

    ``guess`` is None after a run that stands whole: the drafter then just goes on.
    """

    num_accepted: int
    guess: int | None
    probability: float


def likeliest_branches(
    run: DraftChain, num_accepted: NDArray[np.float64], alpha: float, limit: int | None
) -> list[Branch]:
    """The ``limit`` likeliest outcomes (None: all), the likeliest first.

    ``num_accepted`` ``[len(run) + 1]`` are the probabilities of how many tokens stand,
    ``alpha`` that of a token of which nothing is known yet.
    """
    outcomes = _outcomes(run, num_accepted, alpha)
    possible = [branch for branch in outcomes if branch.probability > 0]
    possible.sort(key=lambda branch: -branch.probability)
    return possible[:limit]


def _outcomes(run: DraftChain, num_accepted: NDArray[np.float64], alpha: float) -> Iterator[Branch]:
    for accepted, (token, choices) in enumerate(zip(run.tokens, run.choices, strict=True)):
        if choices is None:
            continue
        rest = max(1 - confidence(token, choices, None), UNSEEN)
        for guess, probability in zip(choices.token_ids, choices.probabilities, strict=True):
            if guess != token:
                given = min(probability / rest, 1.0)
                yield Branch(accepted, guess, float(num_accepted[accepted]) * given)
    yield Branch(len(run.tokens), None, float(num_accepted[len(run.tokens)]) * alpha)


def plant(run: DraftChain, branches: Sequence[Branch]) -> tuple[TokenTree, tuple[int, ...]]:
    """The tree to draft below: ``run`` as a chain, the guesses as leaves beside it.

    Returns it and, for each branch, the node to draft from.
    """
    tokens, parents = list(run.tokens), list(range(len(run.tokens)))
    from_nodes = []
    for branch in branches:
        if branch.guess is None:
            from_nodes.append(branch.num_accepted)
        else:
            tokens.append(branch.guess)
            parents.append(branch.num_accepted)
            from_nodes.append(len(tokens))
    return TokenTree(tuple(tokens), tuple(parents)), tuple(from_nodes)
