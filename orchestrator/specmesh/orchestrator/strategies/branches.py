"""The outcomes of a verification to draft on: the number of accepted tokens, and the next token.

Duan et al. 2024 predict only the number. But a rejected token is replaced by another, which must be
guessed too (see the notes on the paper in docs/papers.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.drafting import UNSEEN, confidence
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.strategies.kit.draft_chain import DraftChain


@dataclass(frozen=True, slots=True)
class Branch:
    """An outcome: ``num_accepted`` tokens are accepted, and the next token is ``guess``.

    ``guess`` is None if the whole chain is accepted, since the drafter then simply continues it.
    """

    num_accepted: int
    guess: int | None
    probability: float


def likeliest_branches(
    chain: DraftChain, num_accepted: NDArray[np.float64], alpha: float
) -> list[Branch]:
    """Return the possible outcomes, the likeliest first.

    ``num_accepted`` ``[len(chain) + 1]`` are the probabilities that 0, 1, … tokens are accepted,
    ``alpha`` is that of a token about which nothing is known yet.
    """
    outcomes = _outcomes(chain, num_accepted, alpha)
    possible = [branch for branch in outcomes if branch.probability > 0]
    possible.sort(key=lambda branch: -branch.probability)
    return possible


def _outcomes(
    chain: DraftChain, num_accepted: NDArray[np.float64], alpha: float
) -> Iterator[Branch]:
    for accepted, (token, choices) in enumerate(zip(chain.tokens, chain.choices, strict=True)):
        if choices is None:
            continue
        rest = max(1 - confidence(token, choices, None), UNSEEN)
        for guess, probability in zip(choices.token_ids, choices.probabilities, strict=True):
            if guess != token:
                given = min(probability / rest, 1.0)
                yield Branch(accepted, guess, float(num_accepted[accepted]) * given)
    yield Branch(len(chain.tokens), None, float(num_accepted[len(chain.tokens)]) * alpha)


def with_second_choices(
    chain: DraftChain, outcomes: Sequence[Branch], num_tokens: int
) -> TokenTree:
    """Add the guesses of ``outcomes``, the likeliest first, to ``chain`` as leaves beside it, up to
    ``num_tokens`` in all. If the chain was drawn (rejection mode), add nothing, since the drafter
    did not draw the guesses.

    A right guess saves a verification: the target's token after it is known.
    """
    guessed = [] if chain.drawn_from else [each for each in outcomes if each.guess is not None]
    tree, _ = plant(chain, guessed[: max(0, num_tokens - len(chain.tokens))])
    return tree


def plant(chain: DraftChain, branches: Sequence[Branch]) -> tuple[TokenTree, tuple[int, ...]]:
    """Return the tree to draft below, ``chain`` with the guesses as leaves beside it, and for each
    branch the node to draft from."""
    tokens, parents = list(chain.tokens), list(range(len(chain.tokens)))
    from_nodes = []
    for branch in branches:
        if branch.guess is None:
            from_nodes.append(branch.num_accepted)
        else:
            tokens.append(branch.guess)
            parents.append(branch.num_accepted)
            from_nodes.append(len(tokens))
    return TokenTree(tuple(tokens), tuple(parents)), tuple(from_nodes)
