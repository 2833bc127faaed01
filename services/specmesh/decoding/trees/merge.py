"""The merging of several drafts into one tree, so that one verification covers all of them.

It follows SpecInfer (Miao et al. 2024, Section 3): a path is in the merged tree if it is in any of
the drafts, and a path that several drafts share is verified once.

Greedy and coupled mode: the target has one token for each position, and every path is one more
chance to contain it. Rejection mode: acceptance tries a node's children as draws without
replacement from one distribution, so all children of a node come from the first draft that has any
there. Another draft continues below them if its own token is among them, and where the first draft
ends: its tokens there were drawn from its distribution after exactly these tokens, and depend on
nothing else. If its own child isn't among them, that child is never verified, whatever its token,
so it does not affect the others.

Nodes are numbered level by level, and if there are too many, the first ones stay. Whether a node
stays depends on the tokens of earlier levels and, in rejection mode, on the number of children of
the nodes on its own level, which no token of that level determines. So the rule in
``orchestrator/strategies/base.py`` is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.tree import TokenTree


@dataclass(frozen=True, slots=True)
class DrawnTree:
    """A tree and, in rejection mode, the distribution from which each node's children were
    drawn."""

    tree: TokenTree
    distributions: Mapping[int, Distribution]


Place: TypeAlias = tuple[int | None, ...]
"""The node at which a path ends in each of the drafts; None for drafts without the path."""


def merge(drafts: Sequence[DrawnTree], max_nodes: int) -> DrawnTree:
    """Merge ``drafts``, all below the same prefix, into the first ``max_nodes`` nodes of their
    union. Siblings from earlier drafts come first, so the best chain (``best_chain.py``) follows
    the first draft as far as it goes."""
    one_source = any(draft.distributions for draft in drafts)
    token_ids: list[int] = []
    parents: list[int] = []
    distributions: dict[int, Distribution] = {}
    places: list[Place] = [(0,) * len(drafts)]
    node = 0
    while node < len(places) and len(token_ids) < max_nodes:
        sources = list(_sources(drafts, places[node]))[: 1 if one_source else None]
        children = dict.fromkeys(token for source in sources for token in _below(*source))
        for token in list(children)[: max_nodes - len(token_ids)]:
            token_ids.append(token)
            parents.append(node)
            places.append(_step(drafts, places[node], token))
        for draft, at in sources:
            if at in draft.distributions:
                distributions[node] = draft.distributions[at]
        node += 1
    return DrawnTree(TokenTree(tuple(token_ids), tuple(parents)), distributions)


def _sources(drafts: Sequence[DrawnTree], place: Place) -> Iterator[tuple[DrawnTree, int]]:
    """Yield the drafts that have children at ``place``, each with its node."""
    for draft, at in zip(drafts, place, strict=True):
        if at is not None and draft.tree.children(at):
            yield draft, at


def _below(draft: DrawnTree, node: int) -> tuple[int, ...]:
    return draft.tree.tokens_on(draft.tree.children(node))


def _step(drafts: Sequence[DrawnTree], place: Place, token: int) -> Place:
    return tuple(
        None if at is None else draft.tree.child_with(at, token)
        for draft, at in zip(drafts, place, strict=True)
    )
