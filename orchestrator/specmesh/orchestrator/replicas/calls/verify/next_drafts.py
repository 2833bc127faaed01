"""Drafts that come with verdicts: the message that requests them, and their parsing."""

from __future__ import annotations

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import EMPTY
from specmesh.mesh.v1alpha1 import drafter_pb2, verifier_pb2
from specmesh.orchestrator.replicas.calls.draft.drafts import DraftLimits, read_part
from specmesh.orchestrator.strategies.commands import Verify
from specmesh.orchestrator.strategies.events import Drafted
from specmesh.orchestrator.strategies.kit.draft_noise import draft_sampling
from specmesh.serving.codec.draft_rules import write_growth, write_stop


def write_next_draft(
    command: Verify, sampling: Sampling, epoch: int
) -> verifier_pb2.NextDraft | None:
    """Return the message that requests the draft of ``command``, with sampling noise of its own;
    None if it asks for none."""
    asked = command.next_draft
    if asked is None:
        return None
    return verifier_pb2.NextDraft(
        depth=asked.depth,
        growth=write_growth(asked.growth),
        stop=write_stop(asked.stop),
        num_choices=asked.num_choices,
        seed=draft_sampling(sampling, command.task, epoch).seed,
    )


def read_next_draft(
    response: verifier_pb2.VerifyResponse, command: Verify, sampling: Sampling, vocab_size: int
) -> Drafted | None:
    """Return the draft that came with the answer to ``command``; None without one.

    Raises ``InvalidField`` for anything that the target could not verify or that was not asked for,
    such as a tree in place of a chain.
    """
    asked = command.next_draft
    if asked is None or not response.HasField("next_draft"):
        return None
    num_nodes = asked.depth if asked.growth is None else asked.growth.max_nodes
    limits = DraftLimits(num_nodes, asked.depth)
    part = read_part(response.next_draft, EMPTY, limits, vocab_size, sampling.mode)
    if asked.growth is None and not part.tree.is_chain:
        raise InvalidField("next_draft.parents", "is not a chain")
    return Drafted(
        task=command.task,
        token_ids=part.tree.token_ids,
        parents=part.tree.parents,
        distributions=part.distributions,
        choices=part.choices,
        last=True,
    )


def num_levels(response: drafter_pb2.DraftResponse) -> int:
    """Return the number of levels of such a draft. Its parents must be valid; its last node is on
    the last level."""
    node, number = len(response.parents), 0
    while node:
        node, number = response.parents[node - 1], number + 1
    return number
