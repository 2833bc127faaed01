"""Any decoder-only model that ``AutoModelForCausalLM`` loads, scoring trees of tokens.

The model's own code runs, with specmesh's attention and linear layers (see ``forward_passes.py``).
One forward pass takes tokens of many sequences: chunks of long prefixes, trees, single tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specmesh.decoding.compiled import choice as compiled
from specmesh.decoding.prefix import PrefixChain
from specmesh.inference.engine.engine_metrics import record_forward
from specmesh.inference.engine.forward_plan import is_scored, kind_of, plan_forward
from specmesh.inference.engine.kv_memory import KVMemory
from specmesh.inference.engine.kv_store import KVShape
from specmesh.inference.engine.paged_sequence import PagedSequence
from specmesh.inference.model import (
    DEFAULT_ROOM_TOKENS,
    Cancellation,
    ForwardRequest,
    ForwardSize,
    Logits,
    ModelDescription,
    ModelNotLoadable,
)
from specmesh.inference.models.cpu.attention import prepare
from specmesh.inference.models.cpu.linear import pack_linears
from specmesh.inference.models.cpu.norm import fuse_norms
from specmesh.inference.models.cuda.wanted import Wanted
from specmesh.inference.models.device_errors import telling_apart
from specmesh.inference.models.divider import Divider
from specmesh.inference.models.forward_passes import passes_of
from specmesh.inference.models.heads.tensor_heads import TensorHeads
from specmesh.inference.models.loading import naming, read_model
from specmesh.inference.models.probe import PROBE_BLOCKS, check_same, plain_logits
from specmesh.inference.models.tensor_parallel import Ranks, kv_heads_by_rank
from specmesh.inference.team import team_for, tell_of_compiling

CPU_CACHE_BYTES = 1 << 30
FREE_SHARE = 0.8
"""The share of the memory that a loaded model leaves free on its GPU that goes to KV by default."""

MAX_BATCH = 64
GPU_BATCH = 256
"""The most requests of a forward pass; on a GPU, 256 single tokens take a third longer than 64."""
CHUNK_TOKENS = 256


class TransformersModel:
    """A ``LanguageModel`` that keeps the KV of all its sequences and recent prefixes in one store.

    With ``ranks`` it is this rank's part of a model: only rank 0 gets requests, the other ranks
    ``follow`` it. With ``heads``, sequences keep the hidden states from which heads begin.
    """

    def __init__(
        self,
        model: Any,
        description: ModelDescription,
        cache_bytes: int,
        chunk_tokens: int,
        ranks: Ranks | None,
        heads: TensorHeads | None = None,
        divider: Divider | None = None,
        *,
        with_graphs: bool = False,
    ) -> None:
        compiled.prepare(team_for, tell_of_compiling)
        self.description = description
        self.heads = heads
        """The heads trained for this model, if they were loaded."""
        self.max_batch = GPU_BATCH if with_graphs else MAX_BATCH
        self._model = model
        self._chunk_tokens = chunk_tokens
        self._ranks = ranks
        self._hidden: Tensor | None = None
        """The hidden states at the rows of the latest forward pass, for heads."""
        shapes = _kv_shapes(model, heads)
        for shape in shapes:
            prepare(shape, model.device)
        num_blocks = max(1, cache_bytes // sum(shape.block_bytes for shape in shapes))
        if ranks is not None:
            num_blocks = ranks.least(num_blocks)  # a batch names the same slots on all
        self.divider = divider
        """Divides its forward passes; None if they are not divided."""
        zeros = None if divider is None else divider.zeros
        self._memory = KVMemory(shapes, num_blocks, model.device, zeros)
        if divider is not None:
            divider.share_kv(self._memory.stores[0].kv)
        if heads is not None:
            heads.attach(model, self._memory)
        self.pool = self._memory.pool
        """The users of each block of the store."""
        self.passes = passes_of(model, self._memory, divider, with_graphs=with_graphs)
        """The runner of its forward passes."""
        self.pack = self.passes.pack

    @classmethod
    def load(
        cls,
        name: str,
        *,
        revision: str | None = None,
        dtype: str,
        device: str,
        cache_bytes: int | None = None,
        chunk_tokens: int = CHUNK_TOKENS,
        ranks: Ranks | None = None,
        chat_template: str | None = None,
        heads_for: Callable[[Any, str], TensorHeads] | None = None,
        divide: Callable[[], Divider] | None = None,
    ) -> TransformersModel:
        """Load a local folder, or a ``revision`` of a Hugging Face id. Raises ``ModelNotLoadable``.

        KV takes at most ``cache_bytes`` of memory (None: a default for the device); prefixes go
        through forward passes in chunks of ``chunk_tokens``. With ``ranks`` each rank loads its
        part, and returns once all have. ``chat_template`` replaces the model's own. ``heads_for``
        makes heads for the loaded model, which must be undivided, and its digest. ``divide``
        begins to divide the forward passes of a model that is in one process, on the CPU.
        """
        with naming(name):
            loaded = read_model(name, dtype, device, ranks, revision)
            loaded.check_supported()
            description = loaded.describe(dtype, ranks, chat_template)  # before layers are packed
            loaded.model.eval()
            if ranks is None:
                loaded.move_to(device)
            return cls.of(
                loaded.model,
                description,
                name=name,
                cache_bytes=cache_bytes,
                chunk_tokens=chunk_tokens,
                ranks=ranks,
                heads_for=heads_for,
                divide=divide,
            )

    @classmethod
    def of(
        cls,
        model: Any,
        description: ModelDescription,
        *,
        name: str | None = None,
        cache_bytes: int | None = None,
        chunk_tokens: int = CHUNK_TOKENS,
        ranks: Ranks | None = None,
        heads_for: Callable[[Any, str], TensorHeads] | None = None,
        divide: Callable[[], Divider] | None = None,
    ) -> TransformersModel:
        """Serve ``model``, which is on its device, with faster modules; errors call it ``name``.
        The options are those of ``load``. Raises ``ModelNotLoadable``."""
        name = name or description.name
        heads = None
        if heads_for is not None:  # before the output layer is packed
            heads = heads_for(model, description.weights_digest)
        least = PROBE_BLOCKS * sum(shape.block_bytes for shape in _kv_shapes(model, heads))
        if cache_bytes is not None and cache_bytes < least:
            raise ModelNotLoadable(f"--cache-bytes: at least {least} bytes")
        plain = plain_logits(name, model)
        if _can_have_graphs(model) and ranks is None and heads is None and divide is None:
            cache_bytes = cache_bytes or _room_on(model.device)
            description = replace(description, interruptible=False)
            served = cls(model, description, cache_bytes, chunk_tokens, None, with_graphs=True)
            check_same(name, model, served, plain)
            return served
        divider = None if divide is None else divide()
        try:
            _prepare(model, ranks, divider)
            little = PROBE_BLOCKS * kv_shape(model).block_bytes
            probe = cls(model, description, little, chunk_tokens, None, divider=divider)
            check_same(name, model, probe, plain)
            if divider is not None:
                divider.tune(model, kv_shape(model))
        except BaseException:
            if divider is not None:
                divider.close()
            raise
        if ranks is not None:
            ranks.join()
        cache_bytes = cache_bytes or _room_on(model.device)
        return cls(model, description, cache_bytes, chunk_tokens, ranks, heads, divider)

    def close(self) -> None:
        """End what divides its forward passes; none may follow."""
        if self.divider is not None:
            self.divider.close()

    def open(
        self,
        prefix: Sequence[int],
        cancellation: Cancellation,
        room: int = DEFAULT_ROOM_TOKENS,
    ) -> PagedSequence:
        """Open a sequence in blocks of the store. Raises ``NoRoom`` or ``TooLarge``."""
        return PagedSequence(self, self._memory, prefix, room, cancellation)

    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]:
        """Run one forward pass for those ``requests`` that ``plan_forward`` has room for."""
        no_rows = np.empty((0, self.description.vocab_size), np.float32)
        results: list[Logits | None] = [
            no_rows if is_scored(request) else None for request in requests
        ]
        planned = plan_forward(requests, self._chunk_tokens)
        if not planned:
            return results
        batch = self.pack([part for _, _, part in planned], self._memory.ordered)
        wanted = [Wanted.of(requests[each.number], each) for each in planned]
        began = time.perf_counter()
        # Requests without a part in it also wait for it.
        logits = self._run(batch, wanted, [each.sequence.cancellation for each in requests])
        duration_ms = (time.perf_counter() - began) * 1e3
        record_forward(duration_ms, kind_of(planned), len(planned), len(batch.token_ids))
        size = ForwardSize(len(planned), len(batch.rows))
        # A hidden state that is not finite leaves no logit finite, so the first tells of all.
        are_finite = np.isfinite(logits[:, 0])
        row = 0
        for number, sequence, part in planned:
            rows = slice(row, row + len(part.rows))
            sequence.advance(part, requests[number].tree, are_finite=bool(are_finite[rows].all()))
            sequence.latest_forward = size
            if part.rows:
                results[number] = logits[rows]
                if self._hidden is not None:
                    sequence.keep_hidden(self._hidden[rows])
                row = rows.stop
        return results

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """Return the base if all of its blocks are held, else None. Any thread may call this."""
        return self.pool.find_base(base_length, digest)

    def follow(self) -> None:
        """Compute this rank's part of rank 0's forward passes until rank 0 ends."""
        assert self._ranks is not None
        self._ranks.follow(self.compute)

    def _run(
        self, batch: Any, wanted: Sequence[Wanted], cancellations: Sequence[Cancellation]
    ) -> Logits:
        def is_unwanted() -> bool:
            return all(cancellation.is_set() for cancellation in cancellations)

        if self._ranks is not None:
            return self._ranks.lead(batch, self.compute)
        return self.compute(batch, wanted, is_unwanted)

    def compute(
        self,
        batch: Any,
        wanted: Sequence[Wanted] = (),
        is_unwanted: Callable[[], bool] = lambda: False,
    ) -> Logits:
        """Return the logits of ``batch``, ``[rows, vocab]``, with this process's weights; may find
        ``wanted`` tokens.

        Raises ``Interrupted`` once ``is_unwanted`` returns True, on which all ranks must agree;
        ``MemoryError`` if memory runs out; ``DeviceLost`` if no forward pass will succeed any more.
        """
        with telling_apart():
            logits: Logits = self.passes.logits(batch, wanted, is_unwanted)
            if self.heads is not None:
                with torch.inference_mode():
                    self._hidden = self.heads.read(batch)
            return logits


def _prepare(model: Any, ranks: Ranks | None, divider: Divider | None) -> None:
    """Replace the model's linear layers and norms by our own."""
    if divider is not None:
        divider.divide(model)
    if ranks is None:  # a divided layer has transformers' hooks, which packing would lose
        if divider is None:
            pack_linears(model)
        fuse_norms(model, model.dtype)


def _can_have_graphs(model: Any) -> bool:
    """Return whether ``model`` can run as CUDA graphs, unless others take part in its passes."""
    return bool(model.device.type == "cuda")


def _room_on(device: torch.device) -> int:
    """Return the default number of bytes for KV."""
    if device.type != "cuda":
        return CPU_CACHE_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * FREE_SHARE)


def _kv_shapes(model: Any, heads: TensorHeads | None) -> tuple[KVShape, ...]:
    """Return the shapes of all that is kept of a token, by ``model`` and by its ``heads``."""
    return (kv_shape(model), *(() if heads is None else heads.kept))


def kv_shape(model: Any) -> KVShape:
    """Return the shape of the KV that ``model``, or this rank's part of it, keeps for a token."""
    config = model.config
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    if model.tp_size is not None:
        kv_heads = kv_heads_by_rank(model.tp_plan, kv_heads, model.tp_size)
    return KVShape(
        layers=config.num_hidden_layers,
        kv_heads=kv_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype=model.dtype,
    )
