"""One tree of several drafts, so that one verification covers all of them.

As SpecInfer (Miao et al. 2024, Section 3) merges the trees of several drafters: a path is in the
merged tree if it is in one of them, and a path that several share is verified once.

Greedy and coupled mode: the target has one token for each position, and every path is one more
chance to have it. Rejection mode: acceptance tries a node's children as draws without replacement
from one distribution, so the children of a node all come from the first draft that has any there.
Another draft goes on below them where its own token is among them, and where the first draft ends:
what it has drawn there was drawn from its distribution after those very tokens, of which no more is
known than that they are the ones before it. A child of it that isn't among them is never verified,
whatever it is, and takes nothing away from those that are.

Nodes are numbered level by level, and of more than there is room for the first stay. Whether a node
stays follows from the tokens on earlier levels, and in rejection mode from how many children each
node of its own level has, which no token of that level decides. So the rule in
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
    """A tree and, in rejection mode, what each node's children were drawn from."""

    tree: TokenTree
    distributions: Mapping[int, Distribution]


Place: TypeAlias = tuple[int | None, ...]
"""Where a path ends in each of the drafts; None where it isn't in it."""


def merge(drafts: Sequence[DrawnTree], max_nodes: int) -> DrawnTree:
    """The first ``max_nodes`` nodes of the union of ``drafts``, all below the same prefix. Of
    siblings those of earlier drafts come first, so the best chain (``best_chain.py``) follows the
    first draft as far as it goes."""
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
    """The drafts that have children there, each with its node."""
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
