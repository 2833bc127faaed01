"""Forward passes of a model on a GPU: its compiled layers, recorded in CUDA graphs.

Started one by one from Python, the thousand kernels of a pass take longer than they compute. A
graph starts them all at once, but only with the shapes and addresses it was captured with. So there
is one for each of several numbers of tokens, and a pass is padded to the next. Longer passes, which
compute for long, run without one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from specmesh.inference.engine.batch import BatchPart, Copy
from specmesh.inference.engine.kv_memory import KVMemory
from specmesh.inference.model import Interrupted, Logits
from specmesh.inference.models.cuda.compiled import compile_layers
from specmesh.inference.models.cuda.layout import Layout, lay_out
from specmesh.inference.models.cuda.merged_linear import merge_linears
from specmesh.inference.models.cuda.paged_attention import Attended, paged_attention, tile_tokens
from specmesh.inference.models.cuda.static_batch import (
    MIN_WORDS,
    StaticBatch,
    as_logits,
    batch_for,
)

log = logging.getLogger(__name__)

GRAPH_ATTENTION = "specmesh_graph"
"""The attention implementation of models on a GPU."""

CAPTURED_TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""The numbers of tokens of captured passes."""

_TABLE_BLOCKS = 1 << 16
"""The blocks in all tables of a captured pass: a million tokens of context."""
_WARM_UPS = 2


class GraphForwards:
    """Computes the logits of ``model``, whose KV lies in ``memory``."""

    def __init__(self, model: Any, memory: KVMemory) -> None:
        self._model, self._memory = model, memory
        self._store = memory.stores[0]
        self._device = model.device
        heads = model.config.num_attention_heads
        self._shared_heads = heads // self._store.kv.shape[2]
        merge_linears(model)
        model.set_attn_implementation(GRAPH_ATTENTION)
        for module in model.modules():
            layer = getattr(module, "layer_idx", None)
            if layer is not None:
                module.paged_kv = self._store.kv[2 * layer : 2 * layer + 2]
        compile_layers(model, self._warm_up)
        self._graphs: list[_Graph] = []
        if self._device.type == "cuda":
            self._capture()

    def _capture(self) -> None:
        """Capture the graphs, those of most tokens first, so that all share their memory."""
        pool = torch.cuda.graph_pool_handle()
        for num_tokens in reversed(CAPTURED_TOKENS):
            batch = StaticBatch(num_tokens, MIN_WORDS, _TABLE_BLOCKS, self._device)
            self._graphs.insert(0, _Graph(batch, self._run, pool))

    def pack(self, parts: Sequence[BatchPart], copies: Sequence[Copy]) -> Layout:
        """Return the forward pass of ``parts``, to run after ``copies``."""
        num_tokens = sum(len(part.token_ids) for part in parts)
        return lay_out(parts, copies, tile_tokens(num_tokens, self._shared_heads))

    def logits(self, layout: Layout, is_unwanted: Callable[[], bool]) -> Logits:
        """Return the logits of ``layout``, ``[rows, vocab]``; raises ``Interrupted`` if it
        ``is_unwanted`` before it begins."""
        if is_unwanted():
            raise Interrupted
        self._memory.carry_out(layout.copies)
        graph = next((each for each in self._graphs if each.batch.holds(layout)), None)
        logits = self._run(batch_for(layout, self._device)) if graph is None else graph(layout)
        return as_logits(logits, len(layout.rows))

    @torch.inference_mode()
    def _run(self, batch: StaticBatch) -> Tensor:
        out = self._model(
            input_ids=batch.token_ids.long()[None],
            position_ids=batch.positions.long()[None],
            use_cache=False,
            logits_to_keep=batch.rows.long(),
            paged=batch.attended,
        )
        logits: Tensor = out.logits[0].float()
        return logits

    def _warm_up(self) -> None:
        for num_tokens in (1, 16):
            self._run(StaticBatch(num_tokens, MIN_WORDS, 2, self._device))


class _Graph:
    """A captured pass."""

    def __init__(self, batch: StaticBatch, run: Callable[[StaticBatch], Tensor], pool: Any) -> None:
        self.batch = batch
        stream = torch.cuda.Stream(batch.token_ids.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                run(batch)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            self._logits = run(batch)

    def __call__(self, layout: Layout) -> Tensor:
        """Return the logits of ``layout``, followed by those of padding; the next pass overwrites
        them."""
        self.batch.fill(layout)
        self._graph.replay()
        return self._logits


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    paged: Attended,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers' attention functions do: map ``[1, heads, tokens, head_dim]`` to ``[1,
    tokens, heads, head_dim]``."""
    assert attention_mask is None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    attended = paged_attention(
        query,
        key,
        value,
        module.paged_kv,
        paged.slots,
        paged.spans,
        paged.bits,
        paged.tiles,
        paged.lengths,
        paged.starts,
        paged.tables,
        scale,
    )
    return attended, None


AttentionInterface.register(GRAPH_ATTENTION, _attend)
