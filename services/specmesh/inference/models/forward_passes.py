"""The forward passes of a model, for the model that serves: what differs from device to device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from specmesh.inference.engine.batch import Batch, BatchPart, Copy, pack
from specmesh.inference.engine.kv_memory import KVMemory
from specmesh.inference.model import Logits
from specmesh.inference.models.attention import PAGED_ATTENTION, PagedAttention
from specmesh.inference.models.cuda.wanted import Wanted
from specmesh.inference.models.divider import Divider


class ForwardPasses(Protocol):
    """Computes the logits of a model whose KV lies in blocks."""

    def pack(self, parts: Sequence[BatchPart], copies: Sequence[Copy]) -> Any:
        """Return the forward pass of ``parts``, to run after ``copies``; its ``token_ids``
        ``[tokens]`` and ``rows`` ``[rows]`` are arrays."""

    def logits(self, batch: Any, wanted: Sequence[Wanted], is_unwanted: Callable[[], bool]) -> Any:
        """Run the pass ``batch``; return its logits, ``[rows, vocab]``, an array or
        ``DeviceLogits``. It may find ``wanted`` tokens, those of each part in turn. Raises
        ``Interrupted`` if it stops because ``is_unwanted`` returns True."""


class EagerPasses:
    """Runs the model's code as it is, with specmesh's attention, operation by operation; a pass can
    stop between two layers."""

    def __init__(self, model: Any, memory: KVMemory, divider: Divider | None) -> None:
        self._model, self._memory = model, memory
        self._store = memory.stores[0]
        self._divider = divider
        model.set_attn_implementation(PAGED_ATTENTION)

    def pack(self, parts: Sequence[BatchPart], copies: Sequence[Copy]) -> Batch:
        """Implement ``ForwardPasses``."""
        return pack(parts, copies)

    @torch.inference_mode()
    def logits(
        self,
        batch: Batch,
        wanted: Sequence[Wanted],  # noqa: ARG002
        is_unwanted: Callable[[], bool],
    ) -> Logits:
        """Implement ``ForwardPasses``; finds no tokens."""
        self._memory.carry_out(batch.copies)
        divide = None if self._divider is None else self._divider.attention
        out = self._model(
            input_ids=self._store.indexes(batch.token_ids)[None],
            position_ids=self._store.indexes(batch.positions)[None],
            use_cache=False,
            logits_to_keep=self._store.indexes(batch.rows),
            paged=PagedAttention(self._store, batch, is_unwanted, divide),
        )
        if self._divider is not None:
            self._divider.adapt()
        logits: Logits = out.logits[0].float().cpu().numpy()
        return logits


def passes_of(
    model: Any, memory: KVMemory, divider: Divider | None, *, with_graphs: bool
) -> ForwardPasses:
    """Return what runs the forward passes of ``model``, whose KV lies in ``memory``: as CUDA
    graphs, or eagerly."""
    if with_graphs:
        from specmesh.inference.models.cuda.graph_passes import GraphPasses

        return GraphPasses(model, memory)
    return EagerPasses(model, memory, divider)
