"""What drafts are drawn with."""

from __future__ import annotations

from dataclasses import replace

from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.orchestrator.strategies.base import TaskId

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
