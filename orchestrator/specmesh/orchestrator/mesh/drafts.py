"""What a draft is drawn with, and what a drafter says read with care."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specmesh.decoding.drafting import TopK
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling
from specmesh.decoding.tree import TokenTree
from specmesh.orchestrator.strategies.base import TaskId
from specmesh.serving.wire import check_tokens, read_choices, read_distributions
from specmesh.v1 import drafter_pb2

_SEED_STEP = 0x9E3779B97F4A7C15
"""Keeps the seeds of one answer's drafts apart from those of other answers."""
_EPOCH_BITS = 32
"""Task ids stay below: no answer has so many tokens."""


def draft_sampling(sampling: Sampling, task: TaskId, epoch: int) -> Sampling:
    """What a draft is drawn with: in rejection mode its task has noise of its own.

    Else branch prediction would not be exact: which outcomes it drafts on depends on all of a
    draft's tokens; whether it was right decides how far the next verification reaches; and the
    tokens there would be drawn from the very noise that those after the rejected one had. For
    the same reason ``epoch`` counts, that of the session: after a resumption tasks are numbered
    from 1 again, while what was drafted before it is known.
    """
    if sampling.mode is not AcceptanceMode.REJECTION:
        return sampling
    number = (epoch << _EPOCH_BITS) + task
    return replace(sampling, seed=(sampling.seed + number * _SEED_STEP) % (1 << 64))


@dataclass(frozen=True, slots=True)
class DraftPart:
    """One message of a draft: the ``tree`` as it is now, and, by the node that new ones hang
    from, what they were drawn from and what else the drafter thought of."""

    tree: TokenTree
    distributions: dict[int, Distribution]
    choices: dict[int, TopK]


def read_part(
    response: drafter_pb2.DraftResponse, tree: TokenTree, vocab_size: int, mode: AcceptanceMode
) -> DraftPart:
    """What ``response`` adds to ``tree``.

    Raises ``InvalidField`` for whatever the target could not verify.
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
    )


def _check_draws(
    response: drafter_pb2.DraftResponse, distributions: dict[int, Distribution], vocab_size: int
) -> None:
    for token, parent in zip(response.token_ids, response.parents, strict=False):
        drawn_from = distributions.get(parent)
        if drawn_from is None:
            raise InvalidField("draft_distributions", f"none is given for node {parent}")
        if drawn_from.token_ids.max() >= vocab_size:
            raise InvalidField(
                "draft_distributions", f"that of node {parent} lists a token outside the vocabulary"
            )
        if token not in drawn_from.token_ids:
            raise InvalidField(
                "draft_distributions", f"that of node {parent} gives its child no probability"
            )
