"""The message that carries levels of a draft, from a drafter or from the target's heads."""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.inference.service.growth import TreeLevel
from specmesh.mesh.v1alpha1 import cost_pb2, drafter_pb2
from specmesh.serving.codec.wire import write_choices, write_distributions


def write_levels(
    levels: Sequence[TreeLevel], sent: int, cost: cost_pb2.ComputeCost
) -> drafter_pb2.DraftResponse:
    """Return the message with the nodes of ``levels`` (at least one), numbered from ``sent`` + 1
    on, and with their ``cost``."""
    tree = levels[-1].tree
    choices = {node: chosen for level in levels for node, chosen in level.choices.items()}
    return drafter_pb2.DraftResponse(
        token_ids=tree.token_ids[sent:],
        parents=tree.parents[sent:],
        draft_distributions=[
            message for level in levels for message in write_distributions(level.distributions)
        ],
        cost=cost,
        choices=write_choices(choices),
        entropies=[chosen.entropy for chosen in choices.values()],
    )
