"""Verification: the choice of the draft tokens to accept, and of the target's own token after
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.bonus import Bonus, draw_own
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.logprobs import Logprobs
from specmesh.decoding.noise import Purpose, uniforms
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling, choose, warp
from specmesh.decoding.trees.tree import TokenTree

NO_DISTRIBUTIONS: Mapping[int, Distribution] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of verifying a draft.

    ``accepted_nodes`` are a path from the root of the tree downwards; ``next_token`` is the
    target's own token after them: a recovered token in place of rejected draft tokens if
    ``recovered``, else the bonus token after a leaf. ``bonus``, only in rejection mode and if
    requested, is the target's distribution at the bonus token's position. Draft tokens that exist
    for that position by then are tried against it, and ``next_token`` counts only if there are
    none. ``logprobs``, if requested, are those of the accepted tokens and of ``next_token``.
    """

    accepted_nodes: tuple[int, ...]
    next_token: int
    recovered: bool
    bonus: Bonus | None = None
    logprobs: tuple[Logprobs, ...] = ()


def verify(
    tree: TokenTree,
    logits: NDArray[np.floating[Any]],
    sampling: Sampling,
    position: int,
    draft_distributions: Mapping[int, Distribution] = NO_DISTRIBUTIONS,
    num_bonus_candidates: int = 0,
) -> Verdict:
    """Verify ``tree``; a pure function of its arguments.

    Row k of ``logits`` ``[len(tree) + 1, vocab]`` holds the target's logits after node k, row 0
    those after the prefix. ``position`` is that of the first token after the prefix, the length of
    the prefix. ``draft_distributions`` holds, for every node with children, the distribution from
    which they were drawn without replacement, in the order in which they are listed.
    ``num_bonus_candidates`` is the number of tokens that ``Verdict.bonus`` lists, 0 for no bonus.
    Both are for rejection mode only.

    Greedy and coupled: draft tokens are accepted while they equal the target's own tokens.
    Rejection: a chain follows Algorithm 1 of Leviathan et al. 2023. Several children are tried in
    turn (multi-round speculative sampling: SpecInfer, Miao et al. 2024; without replacement as in
    Sequoia, Chen et al. 2024): child x is accepted with probability min(1, p(x) / q(x)); else p
    becomes norm(max(0, p - q)), q loses x, and the next is tried. If all are rejected, the
    recovered token is drawn from the remaining p.

    Raises ``InvalidField`` for a node with children but no distribution, and for a distribution
    outside the vocabulary or under which a child could not have been drawn; ``FloatingPointError``
    for logits that ``warp`` refuses.

    Noise keyed by position is used again when a position is drafted or verified again, and
    rejection mode stays exact for the following reason. The token committed at position i is a
    function of the tokens before it and of the noise at i. The tokens before it are functions of
    the noise before i, which is independent of the noise at i. So even if the noise at i was looked
    up for discarded drafts, it is independent of the tokens before i. This holds as long as
    strategies follow the rule in ``orchestrator/strategies/base.py``.
    """
    if len(logits) != len(tree) + 1:
        raise ValueError(f"{len(logits)} rows of logits for a tree of {len(tree)} nodes")
    if sampling.mode is AcceptanceMode.REJECTION:
        _check_draws(tree, draft_distributions, vocab_size=logits.shape[1])
        return _follow_accepted(
            tree, logits, sampling, position, draft_distributions, num_bonus_candidates
        )
    return _follow_chosen(tree, logits, sampling, position)


def _follow_chosen(
    tree: TokenTree, logits: NDArray[np.floating[Any]], sampling: Sampling, position: int
) -> Verdict:
    accepted: list[int] = []
    node = 0
    while True:
        token = choose(logits[node], sampling, position + len(accepted))
        child = tree.child_with(node, token)
        if child is None:
            return Verdict(tuple(accepted), token, recovered=bool(tree.children(node)))
        accepted.append(child)
        node = child


def _follow_accepted(
    tree: TokenTree,
    logits: NDArray[np.floating[Any]],
    sampling: Sampling,
    position: int,
    draft_distributions: Mapping[int, Distribution],
    num_bonus_candidates: int,
) -> Verdict:
    accepted: list[int] = []
    node = 0
    while True:
        children = tree.children(node)
        at = position + len(accepted)
        target_probs = _dense(warp(logits[node], sampling), logits.shape[1])
        if children:
            tokens = tree.tokens_on(children)
            noise = uniforms(sampling.seed, at, Purpose.ACCEPT, np.array(tokens))
            taken, target_probs = _try_in_turn(
                tokens, target_probs, draft_distributions[node], noise
            )
            if taken is not None:
                node = children[taken]
                accepted.append(node)
                continue
        if num_bonus_candidates and not children:
            bonus = Bonus.summarise(target_probs, sampling.seed, at, num_bonus_candidates)
            return Verdict(tuple(accepted), bonus.meet([]), recovered=False, bonus=bonus)
        token = _draw(target_probs, sampling.seed, at)
        return Verdict(tuple(accepted), token, recovered=bool(children))


def _try_in_turn(
    tokens: tuple[int, ...],
    target_probs: NDArray[np.float64],
    draft: Distribution,
    noise: NDArray[np.float64],
) -> tuple[int | None, NDArray[np.float64]]:
    """Return the index of the accepted token of ``tokens``, None if all are rejected, and the
    target's distribution ``[vocab]`` after the rejections.

    ``target_probs`` is ``[vocab]``; ``noise`` holds one uniform number for each token.
    """
    listed = draft.token_ids.tolist()
    draft_probs = draft.probabilities
    for i, token in enumerate(tokens):
        drawn = listed.index(token)
        if noise[i] * draft_probs[drawn] < target_probs[token]:
            return i, target_probs
        residual = target_probs.copy()
        residual[draft.token_ids] -= draft_probs
        residual.clip(min=0, out=residual)
        mass = residual.sum()
        if mass > 0:  # otherwise the two are equal except for rounding
            target_probs = residual / mass
        draft_probs = draft_probs.copy()
        draft_probs[drawn] = 0
        if i + 1 < len(tokens):
            draft_probs /= draft_probs.sum()
    return None, target_probs


def _draw(target_probs: NDArray[np.float64], seed: int, position: int) -> int:
    token_ids = np.flatnonzero(target_probs)
    return draw_own(token_ids, target_probs[token_ids], seed, position)


def _dense(distribution: Distribution, vocab_size: int) -> NDArray[np.float64]:
    probabilities = np.zeros(vocab_size)
    probabilities[distribution.token_ids] = distribution.probabilities
    return probabilities


def _check_draws(
    tree: TokenTree, draft_distributions: Mapping[int, Distribution], vocab_size: int
) -> None:
    """Raise ``InvalidField`` for a distribution that is missing or does not fit its children.

    All nodes are checked before any noise is looked up, so a wrong request fails every time.
    """
    field = "tree.draft_distributions"
    for node in range(len(tree) + 1):
        children = tree.children(node)
        if not children:
            continue
        draft = draft_distributions.get(node)
        if draft is None:
            raise InvalidField(field, f"node {node} has children but no distribution")
        if draft.token_ids.max() >= vocab_size:
            raise InvalidField(field, f"node {node} lists a token outside the vocabulary")
        drawable = set(draft.token_ids[draft.probabilities > 0].tolist())
        undrawable = set(tree.tokens_on(children)) - drawable
        if undrawable:
            raise InvalidField(
                field, f"node {node} gives its child {min(undrawable)} the probability 0"
            )
