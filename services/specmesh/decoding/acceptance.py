"""Verification: the choice of the draft tokens to accept, and of the target's own token after
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.bonus import Bonus
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.logits_row import LogitsRow
from specmesh.decoding.logprobs import Logprobs
from specmesh.decoding.noise import Purpose, uniforms
from specmesh.decoding.own_tokens import OwnTokens
from specmesh.decoding.race import winner
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling, choose, kept
from specmesh.decoding.trees.tree import TokenTree

NO_DISTRIBUTIONS: Mapping[int, Distribution] = MappingProxyType({})
_NONE_FOUND: Mapping[int, int] = MappingProxyType({})


class NodeLogits(Protocol):
    """Logits ``[len(tree) + 1, vocab]``: an array, or rows that are processed when read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows and that of tokens."""

    def __len__(self) -> int: ...

    def __getitem__(self, node: int, /) -> NDArray[np.floating[Any]]: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of verifying a draft.

    ``accepted_nodes`` are a path from the root of the tree downwards; ``next_token`` is the
    target's own token after them: a recovered token in place of rejected draft tokens if
    ``recovered``, else the bonus token after a leaf. ``bonus``, only in rejection mode and if
    requested, is the target's distribution at the bonus token's position. Draft tokens that exist
    for that position by then are tried against it, and ``next_token`` counts only if there are
    none. ``logprobs``, if requested, are those of the accepted tokens and of ``next_token``, and
    ``node_logprobs`` those of all tokens of the tree.
    """

    accepted_nodes: tuple[int, ...]
    next_token: int
    recovered: bool
    bonus: Bonus | None = None
    logprobs: tuple[Logprobs, ...] = ()
    node_logprobs: tuple[Logprobs, ...] = ()


def verify(
    tree: TokenTree,
    logits: NodeLogits,
    sampling: Sampling,
    position: int,
    draft_distributions: Mapping[int, Distribution] = NO_DISTRIBUTIONS,
    num_bonus_candidates: int = 0,
    own: OwnTokens | None = None,
) -> Verdict:
    """Verify ``tree``; a pure function of its arguments but for ``own``, which only saves work.

    Row k of ``logits`` ``[len(tree) + 1, vocab]`` holds the target's logits after node k, processed
    as the request says, row 0 those after the prefix. ``position`` is that of the first token after
    the prefix, the length of the prefix. ``draft_distributions`` holds, for every node with
    children, the distribution from which they were drawn without replacement, in the order in which
    they are listed.
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
    found = _NONE_FOUND if own is None else own.found
    return _follow_chosen(tree, logits, sampling, position, found)


def _follow_chosen(
    tree: TokenTree,
    logits: NodeLogits,
    sampling: Sampling,
    position: int,
    found: Mapping[int, int],
) -> Verdict:
    accepted: list[int] = []
    cuts = sampling.mode is AcceptanceMode.COUPLED and sampling.top_p < 1
    node = 0
    while True:
        token = found.get(node)
        if token is None or cuts:
            token = choose(logits[node], sampling, position + len(accepted), token)
        child = tree.child_with(node, token)
        if child is None:
            return Verdict(tuple(accepted), token, recovered=bool(tree.children(node)))
        accepted.append(child)
        node = child


def _follow_accepted(
    tree: TokenTree,
    logits: NodeLogits,
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
        row = kept(logits[node], sampling)
        if children:
            tokens = tree.tokens_on(children)
            taken, token = _try_in_turn(tokens, row, draft_distributions[node], sampling.seed, at)
            if taken is None:
                return Verdict(tuple(accepted), token, recovered=True)
            node = children[taken]
            accepted.append(node)
            continue
        if num_bonus_candidates:
            bonus = Bonus.summarise(row, sampling.seed, at, num_bonus_candidates)
            return Verdict(tuple(accepted), bonus.meet([]), recovered=False, bonus=bonus)
        token = winner(row, sampling.seed, at, Purpose.RESIDUAL)
        return Verdict(tuple(accepted), token, recovered=False)


def _try_in_turn(
    tokens: tuple[int, ...], row: LogitsRow, draft: Distribution, seed: int, position: int
) -> tuple[int | None, int]:
    """Return the index of the accepted one of ``tokens``, None if all are rejected, and the
    accepted or recovered token."""
    noise = uniforms(seed, position, Purpose.ACCEPT, np.array(tokens))
    order = draft.token_ids.argsort()
    listed, draft_probs = draft.token_ids[order], draft.probabilities[order]
    at = listed.searchsorted(tokens)
    if row.outweighs(tokens[0], float(noise[0] * draft_probs[at[0]])):
        return 0, tokens[0]
    # Only the draft's tokens change their probability; all others are one outcome, the tail.
    target = Bonus.of(row, listed, seed, position)
    left = target.outcomes
    for i, drawn in enumerate(at):
        if noise[i] * draft_probs[drawn] < left[drawn]:
            return i, tokens[i]
        residual = (left - np.append(draft_probs, 0)).clip(min=0)
        mass = residual.sum()
        if mass > 0:  # otherwise the two are equal except for rounding
            left = residual / mass
        draft_probs = draft_probs.copy()
        draft_probs[drawn] = 0
        if i + 1 < len(tokens):
            draft_probs /= draft_probs.sum()
    return None, target.draw(left)


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
