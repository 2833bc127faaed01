"""The sampling noise of drafts."""

from __future__ import annotations

from dataclasses import replace

from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.orchestrator.strategies.commands import TaskId

_SEED_STEP = 0x9E3779B97F4A7C15
"""Separates the seeds of one answer's drafts from those of other answers."""
_EPOCH_BITS = 32
"""Task ids fit these bits, because no answer has that many tokens."""


def draft_sampling(sampling: Sampling, task: TaskId, epoch: int) -> Sampling:
    """Return the parameters that a draft is drawn with: in rejection mode each task has noise of
    its own.

    Otherwise branch prediction would not be exact: all of a draft's tokens decide which outcomes it
    drafts on; whether it was right decides how far the next verification reaches; and the tokens
    there would be drawn from the very noise that the tokens after the rejected one had. The
    session's ``epoch`` is included for the same reason: after a resumption tasks are numbered from
    1 again, while what was drafted before is known.
    """
    if sampling.mode is not AcceptanceMode.REJECTION:
        return sampling
    number = (epoch << _EPOCH_BITS) + task
    return replace(sampling, seed=(sampling.seed + number * _SEED_STEP) % (1 << 64))
