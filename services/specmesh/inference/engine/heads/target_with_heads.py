"""A target that also drafts, with heads that start from its own hidden states."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.engine.engine_metrics import record_forward
from specmesh.inference.engine.heads.draft_sequence import DraftSequence
from specmesh.inference.engine.heads.engine_heads import EngineHeads, HasHidden, Reading
from specmesh.inference.engine.kv_counts import KvCounts
from specmesh.inference.model import (
    DEFAULT_ROOM_TOKENS,
    Cancellation,
    ForwardRequest,
    ForwardSize,
    LanguageModel,
    Logits,
    SequenceState,
)

STEP_ROWS = 1024
"""The most tokens that heads read in one step, since each takes a row of logits; one draft may have
more."""


class TargetWithHeads:
    """A ``LanguageModel`` whose forward passes are either the target's or steps of its heads.

    While any call drafts, a forward pass is a step for all calls that draft, and calls that need
    the target wait. The wait is short: a step takes a small part of the target's time, and there
    are at most as many steps in a row as a draft is deep, because a new draft begins after a
    forward pass of the target. So drafts don't wait for the target, and calls share its next
    forward pass again.
    """

    def __init__(self, target: LanguageModel, heads: EngineHeads) -> None:
        self._target = target
        self._heads = heads
        self.description = replace(target.description, heads_depth=heads.max_depth)
        self.max_batch = target.max_batch

    @property
    def pool(self) -> KvCounts | None:
        """The target's pool, whose blocks also hold what heads keep of a text."""
        return self._target.pool

    def open(
        self, prefix: Sequence[int], cancellation: Cancellation, room: int = DEFAULT_ROOM_TOKENS
    ) -> SequenceState:
        """Open a sequence of the target."""
        return self._target.open(prefix, cancellation, room)

    def room(self, num_tokens: int, tree: TokenTree, num_nodes: int) -> int:
        """Return the room to open below a prefix of ``num_tokens`` in order to verify ``tree`` and
        then draft up to ``num_nodes`` nodes, as far as there can be so much."""
        then = max(tree.depths) + self._heads.num_kept(num_nodes)
        if self.pool is not None:
            then = min(then, self.pool.capacity_tokens - num_tokens)
        return max(len(tree), then)

    def open_draft(
        self, sequence: SequenceState, node: int, token_id: int, room: int
    ) -> DraftSequence:
        """Open a sequence of the heads, whose trees of up to ``room`` nodes hang from ``token_id``.

        The target has chosen that token after ``node``, one of the nodes of ``sequence`` scored
        last, which is closed and has kept the path to ``node``. Trees must grow by one level from
        call to call. Raises ``NoRoom`` or ``TooLarge`` if there is none for what heads keep.
        """
        assert isinstance(sequence, HasHidden)
        state = self._heads.begin(sequence.hidden_at(node))
        text = self._heads.open(sequence, token_id, room)
        return DraftSequence(self, self._heads, state, token_id, text, sequence.cancellation)

    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]:
        """Run a step of the heads if any request is for them, with None for the other requests;
        else run the target's forward pass."""
        drafting = [
            (index, request.sequence, request.tree)
            for index, request in enumerate(requests)
            if isinstance(request.sequence, DraftSequence)
        ]
        if not drafting:
            return self._target.forward(requests)
        results: list[Logits | None] = [None] * len(requests)
        for (index, _, _), logits in zip(
            drafting, self._step([each[1:] for each in drafting]), strict=False
        ):
            results[index] = logits
        return results

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """Return what the target finds."""
        return self._target.find_base(base_length, digest)

    def _step(self, drafts: Sequence[tuple[DraftSequence, TokenTree]]) -> list[Logits]:
        """Return the logits of the new nodes of the first ``drafts``, as many as fit in one
        step."""
        taken: list[DraftSequence] = []
        readings: list[Reading] = []
        num_rows = 0
        for sequence, tree in drafts:
            num_rows += len(tree) + 1 - sequence.num_rows
            if taken and num_rows > STEP_ROWS:
                break
            taken.append(sequence)
            readings.append(sequence.unread(tree))
        counts = [len(reading.states) for reading in readings]
        if not any(counts):
            return [np.empty((0, self.description.vocab_size), np.float32) for _ in taken]
        began = time.perf_counter()
        logits, after = self._heads.step(readings)
        record_forward((time.perf_counter() - began) * 1e3, "heads", len(taken), len(after))
        results, first = [], 0
        for sequence, count in zip(taken, counts, strict=True):
            sequence.advance(after[first : first + count])
            sequence.latest_forward = ForwardSize(len(taken), len(after))
            results.append(logits[first : first + count])
            first += count
        return results
