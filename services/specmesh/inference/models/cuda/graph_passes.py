"""Forward passes of a model on a GPU: its compiled layers, recorded in CUDA graphs.

Started one by one from Python, the thousand kernels of a pass take longer than they compute. A
graph starts them all at once, but only with the shapes and addresses it was captured with. So there
is one for each of several numbers of tokens, and a pass is padded to the next. Longer passes, which
compute for long, run without one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AttentionInterface

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.batch import BatchPart, Copy
from specmesh.inference.engine.kv_memory import KVMemory
from specmesh.inference.model import Interrupted
from specmesh.inference.models.cuda.choice import own_tokens
from specmesh.inference.models.cuda.compiled import call_before, compile_layers
from specmesh.inference.models.cuda.device_logits import DeviceLogits
from specmesh.inference.models.cuda.layout import Layout, lay_out
from specmesh.inference.models.cuda.linear import replace_linears
from specmesh.inference.models.cuda.paged_attention import Attended, paged_attention, tile_tokens
from specmesh.inference.models.cuda.recording import Recording
from specmesh.inference.models.cuda.static_batch import MIN_BLOCKS, StaticBatch, batch_for, on_host
from specmesh.inference.models.cuda.wanted import Wanted, WantedRows, hand_out, rows_of
from specmesh.inference.reasons import reason_of

log = logging.getLogger(__name__)

GRAPH_ATTENTION = "specmesh_graph"
"""The attention implementation of models on a GPU."""

CAPTURED_TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""The numbers of tokens of captured passes."""

_FIRST_PIECE = 8
"""The share of the layers in the first piece of a graph, as a divisor. To launch all kernels takes
less than a tenth of the time in which they run."""


class GraphPasses:
    """Implements ``ForwardPasses`` for ``model``, whose KV lies in ``memory``."""

    def __init__(self, model: Any, memory: KVMemory) -> None:
        self._model, self._memory = model, memory
        self._store = memory.stores[0]
        self._device = model.device
        self._kv_heads = self._store.kv.shape[2]
        self._shared_heads = model.config.num_attention_heads // self._kv_heads
        self._context_blocks = -(-model.config.max_position_embeddings // BLOCK_TOKENS)
        replace_linears(model)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()  # of the weights that were joined: other processes may need it
        model.set_attn_implementation(GRAPH_ATTENTION)
        for module in model.modules():
            layer = getattr(module, "layer_idx", None)
            if layer is not None:
                module.paged_kv = self._store.kv[2 * layer : 2 * layer + 2]
                module.paged_heads = model.config.num_attention_heads
        self._end_piece = _nothing
        with self._current():
            layers = compile_layers(model, self._warm_up)
            if len(layers) >= _FIRST_PIECE:
                call_before(layers[len(layers) // _FIRST_PIECE], self._before_second_piece)
            self._graphs = self._captured() if self._device.type == "cuda" else []

    def pack(self, parts: Sequence[BatchPart], copies: Sequence[Copy]) -> Layout:
        """Implement ``ForwardPasses``."""
        num_tokens = sum(len(part.token_ids) for part in parts)
        return lay_out(parts, copies, tile_tokens(num_tokens, self._shared_heads))

    def logits(
        self, batch: Layout, wanted: Sequence[Wanted], is_unwanted: Callable[[], bool]
    ) -> DeviceLogits:
        """Implement ``ForwardPasses``; a pass that has begun does not stop."""
        if is_unwanted():
            raise Interrupted
        with self._current():
            self._memory.carry_out(batch.copies)
            return self._logits(batch, wanted)

    @property
    def recordings(self) -> dict[int, Recording[Any]]:
        """The captured passes, by their numbers of tokens."""
        return {graph.batch.num_tokens: graph.recording for graph in self._graphs}

    def _current(self) -> AbstractContextManager[Any]:
        """Make its device the current one, on which kernels start and graphs are captured."""
        return torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()

    def _logits(self, batch: Layout, wanted: Sequence[Wanted]) -> DeviceLogits:
        rows = rows_of(wanted, len(batch.rows))
        graph = next((each for each in self._graphs if each.batch.holds(batch)), None)
        if graph is not None:
            passed = graph(batch, rows)
        else:
            static = batch_for(batch, rows, self._kv_heads, self._device)
            passed = self._run(static, max(1, len(batch.rows)))
        hand_out(on_host(passed.tokens).tolist(), wanted)
        return DeviceLogits(passed.logits[: len(batch.rows)])

    @torch.inference_mode()
    def _run(self, batch: StaticBatch, num_rows: int | None = None) -> _Passed:
        """Run ``batch``; return the first ``num_rows`` of its rows, by default all."""
        rows = slice(num_rows)
        out = self._model(
            input_ids=batch.token_ids.long()[None],
            position_ids=batch.positions.long()[None],
            use_cache=False,
            logits_to_keep=batch.rows[rows].long(),
            paged=batch.attended,
        )
        logits = out.logits[0]
        wanted = (each[rows] for each in (batch.kinds, batch.keys, batch.temperatures))
        return _Passed(logits, own_tokens(logits, *wanted))

    def _warm_up(self) -> None:
        for num_tokens in (1, CAPTURED_TOKENS[-1]):
            self._run(StaticBatch(num_tokens, self._kv_heads, self._device))

    def _captured(self) -> list[_Graph]:
        """Return the graphs, those of fewest tokens first; none if the model's code cannot be
        recorded, as that of RoPE which looks at the positions cannot."""
        pool = torch.cuda.graph_pool_handle()
        graphs: list[_Graph] = []
        try:
            for num_tokens in reversed(CAPTURED_TOKENS):  # the largest takes what all share
                num_blocks = max(MIN_BLOCKS, num_tokens * self._context_blocks)
                batch = StaticBatch(num_tokens, self._kv_heads, self._device, num_blocks=num_blocks)
                graphs.insert(0, _Graph(batch, partial(self._run_in_pieces, batch), pool))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            log.warning("forward passes run without CUDA graphs", extra={"error": reason_of(error)})
            return []
        return graphs

    def _before_second_piece(self) -> None:
        self._end_piece()

    def _run_in_pieces(self, batch: StaticBatch, end_piece: Callable[[], None]) -> _Passed:
        self._end_piece = end_piece
        try:
            return self._run(batch)
        finally:
            self._end_piece = _nothing


class _Passed(NamedTuple):
    """The logits of a pass ``[rows, vocab]``, and the own tokens of its rows ``[rows]``."""

    logits: Tensor
    tokens: Tensor


class _Graph:
    """A captured pass."""

    def __init__(
        self, batch: StaticBatch, run: Callable[[Callable[[], None]], _Passed], pool: Any
    ) -> None:
        self.batch = batch
        self.recording = Recording(run, pool)

    def __call__(self, layout: Layout, wanted: WantedRows) -> _Passed:
        """Return what the pass of ``layout`` computes, followed by the same of padding; the next
        pass overwrites it."""
        self.batch.fill(layout, wanted)
        self.recording.replay()
        return self.recording.result


def _nothing() -> None:
    """Do nothing where a piece of a graph would end."""


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
    tokens, heads, head_dim]``. Raises ``ValueError`` for heads that are not the configuration's,
    whose keys and values would lie in the slots of others."""
    assert attention_mask is None
    kv_heads, head_dim = module.paged_kv.shape[2:]
    for states, heads in ((query, module.paged_heads), (key, kv_heads), (value, kv_heads)):
        if states.shape[1] != heads or states.shape[3] != head_dim:
            raise ValueError(
                f"a layer has {states.shape[1]} heads of {states.shape[3]} numbers, "
                f"but the model's configuration says {heads} of {head_dim}"
            )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    attended = paged_attention(
        query,
        key,
        value,
        module.paged_kv,
        paged.spans,
        paged.bits,
        paged.tiles,
        paged.sequences,
        paged.tables,
        paged.counters,
        scale,
    )
    return attended, None


AttentionInterface.register(GRAPH_ATTENTION, _attend)
