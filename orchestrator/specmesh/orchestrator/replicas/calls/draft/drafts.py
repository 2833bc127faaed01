"""Parsing and validation of drafters' responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from specmesh.decoding.drafting import TopK
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import AcceptanceMode, Distribution
from specmesh.decoding.trees.tree import TokenTree
from specmesh.mesh.v1alpha1 import drafter_pb2
from specmesh.orchestrator.replicas.calls.costs import read_cost
from specmesh.orchestrator.replicas.latencies.observations import ReplicaCost
from specmesh.serving.codec.wire import check_tokens, read_choices, read_distributions


class DraftLimits(NamedTuple):
    """The most nodes of a draft's whole tree, and the most tokens that lead to a new one."""

    num_nodes: int
    depth: int

    @classmethod
    def of(cls, request: drafter_pb2.DraftRequest, tree: TokenTree) -> DraftLimits:
        """Return what ``request``, which gives ``tree``, allows."""
        deepest = max(map(tree.depth, request.from_nodes), default=0)
        return cls(len(tree) + most_nodes(request, request.depth), deepest + request.depth)


@dataclass(frozen=True, slots=True)
class DraftPart:
    """One message of a draft: the whole ``tree`` so far, by parent of the new nodes the
    ``distributions`` they were drawn from and the drafter's likeliest tokens (``choices``), and
    what the nodes ``cost``."""

    tree: TokenTree
    distributions: dict[int, Distribution]
    choices: dict[int, TopK]
    cost: ReplicaCost


def most_nodes(request: drafter_pb2.DraftRequest, num_levels: int) -> int:
    """Return the most nodes that ``num_levels`` of the draft may add."""
    if request.HasField("growth"):
        return request.growth.max_nodes
    num_from = len(request.from_nodes) or 1
    if request.HasField("shape"):
        return sum(request.shape.num_children) * num_from
    return num_levels * num_from


def read_part(
    response: drafter_pb2.DraftResponse,
    tree: TokenTree,
    limits: DraftLimits,
    vocab_size: int,
    mode: AcceptanceMode,
) -> DraftPart:
    """Parse the nodes that ``response`` adds to ``tree``.

    Raises ``InvalidField`` for anything that the target could not verify or that ``limits`` forbid,
    and for a cost that is none.
    """
    check_tokens("token_ids", response.token_ids, vocab_size)
    whole = tree.extend(response.token_ids, response.parents)
    deepest = max(whole.depths[len(tree) + 1 :], default=0)
    # Verifiers would refuse it, and nobody could tell whose fault that is.
    if len(whole) > limits.num_nodes or deepest > limits.depth:
        raise InvalidField("token_ids", "more than was asked for")
    distributions = {}
    if mode is AcceptanceMode.REJECTION:
        distributions = read_distributions(response.draft_distributions)
        _check_draws(response, distributions, vocab_size)
    return DraftPart(
        whole,
        distributions,
        read_choices(response.choices, response.entropies, vocab_size),
        read_cost(response.cost),
    )


def _check_draws(
    response: drafter_pb2.DraftResponse, distributions: dict[int, Distribution], vocab_size: int
) -> None:
    for token, parent in zip(response.token_ids, response.parents, strict=False):
        drawn_from = distributions.get(parent)
        if drawn_from is None:
            raise InvalidField("draft_distributions", f"there is none for node {parent}")
        if drawn_from.token_ids.max() >= vocab_size:
            raise InvalidField(
                "draft_distributions",
                f"the one of node {parent} contains a token outside the vocabulary",
            )
        if token not in drawn_from.token_ids:
            raise InvalidField(
                "draft_distributions",
                f"the one of node {parent} gives its child token {token} no probability",
            )
