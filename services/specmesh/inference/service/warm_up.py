"""The forward passes of a model before its first call."""

from __future__ import annotations

import math
import time
from typing import Final

from specmesh.decoding.predict.forward_times import MOST_ROWS, time_forwards
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.heads.target_with_heads import TargetWithHeads
from specmesh.inference.model import Cancellation, ForwardRequest, LanguageModel, SequenceState

_PREFIX: Final = 32
_WIDTHS: Final = (0, 1, 4, 8)
_ROUNDS: Final = 2
"""The forwards of each size that are timed. The quickest counts: the first chooses kernels, and
pauses only ever make forwards longer."""


def warm_up(model: LanguageModel) -> None:
    """Run a forward pass of each width: the first ones allocate memory and choose kernels."""
    if not model.description.num_parameters:
        return  # no kernels to choose, and a simulated forward pass only takes time
    limit = model.description.context_tokens
    for width in _WIDTHS:
        if limit and _PREFIX + width > limit:
            break
        sequence = model.open([0] * _PREFIX, Cancellation(), width)
        model.forward([ForwardRequest(sequence, TokenTree.chain([0] * width))])
        sequence.close(())
        if isinstance(model, TargetWithHeads) and width:
            draft = model.open_draft(sequence, 0, token_id=0, room=width)
            for level in (EMPTY, TokenTree(tuple(range(width)), (0,) * width)):
                model.forward([ForwardRequest(draft, level)])
            draft.close(())


def forward_times(model: LanguageModel) -> list[tuple[int, float]]:
    """Return the rows and seconds of forwards of one call each, by rising size; none for a model
    without parameters, whose forwards take as long as it is told."""
    if not model.description.num_parameters:
        return []
    pool = model.pool
    capacity = model.description.kv_capacity_tokens if pool is None else pool.capacity_tokens
    limits = filter(None, (model.description.context_tokens, capacity))
    room = max(0, min(limits, default=math.inf) - _PREFIX)
    # All forwards up to one of n rows have fewer than 2n together.
    most_rows = int(min(room / (2 * _ROUNDS), MOST_ROWS))
    if not most_rows:
        return []
    sequence = model.open([0] * _PREFIX, Cancellation(), 2 * _ROUNDS * most_rows)
    try:
        timer = _ChainTimer(model, sequence)
        return time_forwards(timer.quickest_s, most_rows)
    finally:
        sequence.close(())


class _ChainTimer:
    """Times forwards that each add to the same chain of tokens."""

    def __init__(self, model: LanguageModel, sequence: SequenceState) -> None:
        self._model, self._sequence = model, sequence
        self._num_tokens = 0
        self._forward_s(0)  # reads the prefix

    def quickest_s(self, num_rows: int) -> float:
        """Return the seconds of the quickest of several forwards of ``num_rows``."""
        return min(self._forward_s(num_rows) for _ in range(_ROUNDS))

    def _forward_s(self, num_rows: int) -> float:
        self._num_tokens += num_rows
        request = ForwardRequest(self._sequence, TokenTree.chain([0] * self._num_tokens))
        begun_s = time.perf_counter()
        while self._model.forward([request])[0] is None:  # too long for one pass
            pass
        return time.perf_counter() - begun_s
