"""Parsing and validation of drafters' responses."""

from __future__ import annotations

from dataclasses import dataclass

from specmesh.decoding.drafting import TopK
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import AcceptanceMode, Distribution
from specmesh.decoding.trees.tree import TokenTree
from specmesh.mesh.v1alpha1 import drafter_pb2
from specmesh.orchestrator.replicas.calls.costs import read_cost
from specmesh.orchestrator.replicas.latencies.observations import ReplicaCost
from specmesh.serving.codec.wire import check_tokens, read_choices, read_distributions


@dataclass(frozen=True, slots=True)
class DraftPart:
    """One message of a draft: the whole ``tree`` so far, by parent of the new nodes the
    ``distributions`` they were drawn from and the drafter's likeliest tokens (``choices``), and
    what the nodes ``cost``."""

    tree: TokenTree
    distributions: dict[int, Distribution]
    choices: dict[int, TopK]
    cost: ReplicaCost


def read_part(
    response: drafter_pb2.DraftResponse, tree: TokenTree, vocab_size: int, mode: AcceptanceMode
) -> DraftPart:
    """Parse the nodes that ``response`` adds to ``tree``.

    Raises ``InvalidField`` for anything that the target could not verify, and for a cost that is
    none.
    """
    check_tokens("token_ids", response.token_ids, vocab_size)
    distributions = {}
    if mode is AcceptanceMode.REJECTION:
        distributions = read_distributions(response.draft_distributions)
        _check_draws(response, distributions, vocab_size)
    return DraftPart(
        tree.extend(response.token_ids, response.parents),
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
