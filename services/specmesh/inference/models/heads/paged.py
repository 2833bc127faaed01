"""Heads that attend to the text, for the engine: what they keep of each token lies in KV blocks.

Their layer reads pairs: a token, and the state of the token before it. The keys and values of a
pair depend on nothing else. So they are computed within the target's forward pass, for each token
that goes through it, by projections alone; attention is only needed to draft. From then on they
share the fate of the target's KV in the same slot: found by digest, copied, moved, evicted, or
written over once the token is rejected.

A token's state is fused from the target's hidden states, and the next token may come with a later
forward pass. What a state contributes to the keys and values of the next pair, which are linear in
both, is therefore kept in the token's slot as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specmesh.decoding.prefix import PrefixChain
from specmesh.inference.engine.batch import Batch, pack
from specmesh.inference.engine.blocks.pool import NoRoom
from specmesh.inference.engine.heads.engine_heads import Reading
from specmesh.inference.engine.kv_memory import KVMemory
from specmesh.inference.engine.kv_store import KVShape
from specmesh.inference.engine.paged_sequence import PagedSequence, PagedTree
from specmesh.inference.model import Logits, SequenceState
from specmesh.inference.models.attention import PagedAttention
from specmesh.inference.models.device_errors import telling_apart
from specmesh.inference.models.heads.eagle3.layer_tap import LayerTap
from specmesh.inference.models.heads.eagle3.served import Eagle3Heads

PAIRS, HALVES = 0, 1
"""The layers of the store: the keys and values of pairs, and the half of them that the state of a
token contributes to the pair of the next."""

FIRST_PAIR = 1
"""The first token of a text has no state before it, so nothing may attend to its slot."""


class PagedHeads:
    """``TensorHeads`` whose drafts are trees below the text in the target's blocks."""

    def __init__(self, heads: Eagle3Heads) -> None:
        self._heads = heads
        self.max_depth = heads.max_depth
        self.kept: tuple[KVShape, ...] = (replace(heads.kv_shape, layers=2),)

    def attach(self, target: Any, memory: KVMemory) -> None:
        """Implement ``TensorHeads``."""
        self._tap = LayerTap(target, self._heads.layer_ids)
        self._memory = memory
        self._store = memory.stores[-1]

    def read(self, batch: Batch) -> Tensor:
        """Keep the pairs of all tokens of ``batch``. Returns the states at its rows."""
        heads, store, indexes = self._heads, self._store, self._store.indexes
        store.expect(batch.slots)
        write = store.writer(batch.slots)
        states = heads.fuse(self._tap.latest[0])
        of_tokens, of_states = heads.halves(indexes(batch.token_ids), states)
        kept = of_states.view(-1, 2, *store.kv.shape[2:])
        write(HALVES, *kept.permute(1, 2, 0, 3)[:, None])
        before = store.kv[2 * HALVES :].index_select(1, indexes(batch.parent_slots))
        pairs = of_tokens + before.transpose(0, 1).flatten(1)
        write(PAIRS, *heads.pairs(pairs, indexes(batch.positions)))
        return states.index_select(0, indexes(batch.rows))

    def begin(self, hidden: Tensor) -> Tensor:
        """Return the state itself."""
        return hidden

    def num_kept(self, room: int) -> int:
        """Return the number of nodes, and the token that they hang from."""
        return room + 1

    def open(self, sequence: SequenceState, token_id: int, room: int) -> PagedTree:
        """Take blocks for a draft: those that ``sequence`` has just given back, and more as
        needed."""
        assert isinstance(sequence, PagedSequence)
        text = PrefixChain(sequence.text)
        text.append((token_id,))
        tree = PagedTree(self._memory, text, room, counted=False)
        if tree.num_pending_tokens > 1:
            tree.release()
            raise NoRoom("the text of the draft is held by others, with no block left to copy to")
        return tree

    @torch.inference_mode()
    def step(self, readings: Sequence[Reading]) -> tuple[Logits, Sequence[Tensor]]:
        """Step as in ``EngineHeads``. Raises ``MemoryError`` and ``DeviceLost``."""
        with telling_apart():
            self._memory.carry_out(tuple(self._memory.ordered))
            trees: list[PagedTree] = [reading.text for reading in readings]
            parts = [
                tree.plan(reading.tree, tree.num_pending_tokens)
                for tree, reading in zip(trees, readings, strict=True)
            ]
            batch = pack(parts, ())
            states = torch.stack([state for reading in readings for state in reading.states])
            if len(parts) > 1:  # which packing may have put in another order
                states = states.index_select(0, self._store.indexes(np.argsort(batch.rows)))
            after = self._read(batch, states)
            if len(parts) > 1:
                after = after.index_select(0, self._store.indexes(batch.rows))
            logits: Logits = self._heads.logits(after).float().cpu().numpy()
            for tree, part, reading in zip(trees, parts, readings, strict=True):
                tree.advance(part, reading.tree)
            return logits, after.unbind(0)

    def close(self, text: PagedTree) -> None:
        """Give back the blocks of a draft."""
        text.release()

    def _read(self, batch: Batch, states: Tensor) -> Tensor:
        """Read the tokens of ``batch``, each in one of ``states``; return their own states."""
        indexes = self._store.indexes
        attention = PagedAttention(self._store, batch, lambda: False, skipped=FIRST_PAIR)
        scale = self._heads.kv_shape.head_dim**-0.5
        return self._heads.read(
            indexes(batch.token_ids),
            states,
            indexes(batch.positions),
            lambda query, key, value: attention(PAIRS, query, key, value, scale),
        )
