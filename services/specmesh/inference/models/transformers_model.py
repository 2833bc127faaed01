"""Any decoder-only model that ``AutoModelForCausalLM`` loads, scoring trees of tokens.

The model's own code runs; only its attention is ours (see ``attention.py``), and its linear layers
are laid out for the processor. One forward pass takes tokens of many sequences: long prefixes chunk
by chunk, trees, single tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from specmesh.decoding.prefix import PrefixChain
from specmesh.inference.engine.batch import Batch, Copy, pack
from specmesh.inference.engine.blocks import BlockPool
from specmesh.inference.engine.engine_metrics import record_forward
from specmesh.inference.engine.forward_plan import is_scored, kind_of, plan_forward
from specmesh.inference.engine.kv_store import KVShape, KVStore
from specmesh.inference.engine.paged_sequence import PagedSequence
from specmesh.inference.engine.unit_spec import UnitSpec
from specmesh.inference.model import (
    DEFAULT_ROOM_TOKENS,
    Cancellation,
    ForwardRequest,
    ForwardSize,
    Logits,
    ModelDescription,
)
from specmesh.inference.models.attention import PAGED_ATTENTION, PagedAttention
from specmesh.inference.models.cpu.linear import pack_linears
from specmesh.inference.models.cpu.norm import fuse_norms
from specmesh.inference.models.device_errors import telling_apart
from specmesh.inference.models.heads.draft_heads import DraftHeads
from specmesh.inference.models.hidden_tap import HiddenTap
from specmesh.inference.models.loading import naming, read_model
from specmesh.inference.models.probe import PROBE_BLOCKS, check_same, plain_logits
from specmesh.inference.models.tensor_parallel import Ranks, kv_heads_by_rank
from specmesh.inference.models.units.crew import Crew, check_units_fit
from specmesh.inference.models.units.linear import divide_linears
from specmesh.inference.models.units.measure import measure
from specmesh.inference.models.units.planner import Planner

CPU_CACHE_BYTES = 1 << 30
FREE_SHARE = 0.8
"""How much of the memory that a loaded model leaves free on its GPU goes to KV by default."""

MAX_BATCH = 64
CHUNK_TOKENS = 256


class TransformersModel:
    """A ``LanguageModel`` that keeps the KV of all its sequences and recent prefixes in one store.

    With ``ranks`` it is this rank's part of a model: rank 0 alone gets requests, the other ranks
    ``follow`` it. With ``heads`` sequences keep what these begin at.
    """

    max_batch = MAX_BATCH

    def __init__(
        self,
        model: Any,
        description: ModelDescription,
        cache_bytes: int,
        chunk_tokens: int,
        ranks: Ranks | None,
        heads: DraftHeads | None = None,
        crew: Crew | None = None,
    ) -> None:
        self.description = description
        self.heads = heads
        """Those that were trained for it, if they were loaded."""
        self._model = model
        self._tap = None if heads is None else HiddenTap(model)
        self._chunk_tokens = chunk_tokens
        self._ranks = ranks
        shape = kv_shape(model)
        num_blocks = max(1, cache_bytes // shape.block_bytes)
        if ranks is not None:
            num_blocks = ranks.least(num_blocks)  # a batch names the same slots on all
        self.crew = crew
        """The units that share its forward passes; None if they are not divided."""
        zeros = None if crew is None else crew.memory.zeros
        self._store = KVStore(shape, num_blocks, model.device, zeros)
        if crew is not None:
            crew.share_kv(self._store.kv)
        self.pool = BlockPool(num_blocks)
        """Who uses which block of the store."""
        self._copies: list[Copy] = []

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
        heads_for: Callable[[Any, str], DraftHeads] | None = None,
        units: Sequence[UnitSpec] | None = None,
    ) -> TransformersModel:
        """Load a local folder, or a ``revision`` of a Hugging Face id; raises ``ModelNotLoadable``.

        KV takes ``cache_bytes`` of memory at most (None: a default for the device); prefixes go
        through forward passes in chunks of ``chunk_tokens``. With ``ranks`` each of them loads its
        part, and returns once all have. ``chat_template`` stands in for the model's own.
        ``heads_for`` makes heads for the loaded model, which must be whole, and its digest. With
        ``units`` these processing units share each forward, and the calling thread is one of them.
        """
        check_units_fit(units, device, ranks)
        with naming(name):
            loaded = read_model(name, dtype, device, ranks, revision)
            loaded.check_supported()
            model = loaded.model
            description = loaded.describe(dtype, ranks, chat_template)  # before layers are packed
            model.eval()
            if ranks is None:
                loaded.move_to(device)
            heads = None
            if heads_for is not None:  # they take the output layer as it is now
                heads = heads_for(model, description.weights_digest)
            plain = plain_logits(name, model)
            crew = None if units is None else Crew(units)
            try:
                _prepare(model, ranks, crew)
                little = PROBE_BLOCKS * kv_shape(model).block_bytes
                probe = cls(model, description, little, chunk_tokens, None, crew=crew)
                check_same(name, model, probe, plain)
                if crew is not None:
                    crew.use(probe.measure_units())
            except BaseException:
                if crew is not None:
                    crew.close()
                raise
            if ranks is not None:
                ranks.join()
            cache_bytes = cache_bytes or _room_on(model.device)
            return cls(model, description, cache_bytes, chunk_tokens, ranks, heads, crew)

    def close(self) -> None:
        """End the processes of its units; no forward pass may follow."""
        if self.crew is not None:
            self.crew.close()

    def measure_units(self) -> Planner:
        """A plan by how fast its units are now."""
        assert self.crew is not None
        return measure(self.crew, self._model, kv_shape(self._model))

    def open(
        self,
        prefix: Sequence[int],
        cancellation: Cancellation,
        room: int = DEFAULT_ROOM_TOKENS,
    ) -> PagedSequence:
        """A sequence in blocks of the store; raises ``NoRoom`` or ``TooLarge``."""
        return PagedSequence(self, self.pool, self._copies.append, prefix, room, cancellation)

    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]:
        """One forward pass for those ``requests`` that ``plan_forward`` has room for."""
        no_rows = np.empty((0, self.description.vocab_size), np.float32)
        results: list[Logits | None] = [
            no_rows if is_scored(request) else None for request in requests
        ]
        planned = plan_forward(requests, self._chunk_tokens)
        if not planned:
            return results
        batch = pack([part for _, _, part in planned], self._copies)
        began = time.perf_counter()
        # A request that has no part in it waits for it all the same.
        logits = self._run(batch, [request.sequence.cancellation for request in requests])
        duration_ms = (time.perf_counter() - began) * 1e3
        record_forward(duration_ms, kind_of(planned), len(planned), len(batch.token_ids))
        size = ForwardSize(len(planned), len(batch.rows))
        row = 0
        for number, sequence, part in planned:
            sequence.advance(part, requests[number].tree)
            sequence.latest_forward = size
            if part.rows:
                rows = slice(row, row + len(part.rows))
                results[number] = logits[rows]
                if self._tap is not None and self._tap.latest is not None:
                    sequence.keep_hidden(self._tap.latest[0, rows])
                row = rows.stop
        return results

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """The base, if all of its blocks are held; safe to call from any thread."""
        return self.pool.find_base(base_length, digest)

    def follow(self) -> None:
        """Compute this rank's part of rank 0's forward passes until it ends."""
        assert self._ranks is not None
        self._ranks.follow(self.compute)

    def _run(self, batch: Batch, cancellations: Sequence[Cancellation]) -> Logits:
        def is_unwanted() -> bool:
            return all(cancellation.is_set() for cancellation in cancellations)

        if self._ranks is not None:
            return self._ranks.lead(batch, self.compute)
        return self.compute(batch, is_unwanted)

    def compute(self, batch: Batch, is_unwanted: Callable[[], bool] = lambda: False) -> Logits:
        """The logits of ``batch`` with this process's weights ``[rows, vocab]``.

        Raises ``Interrupted`` once ``is_unwanted``, on which ranks must not disagree,
        ``MemoryError`` if there is none left, ``DeviceLost`` if no forward pass will succeed any
        more.
        """
        with telling_apart():
            return self._compute(batch, is_unwanted)

    @torch.inference_mode()
    def _compute(self, batch: Batch, is_unwanted: Callable[[], bool]) -> Logits:
        for copy in batch.copies:
            self._store.copy(copy)
            del self._copies[:1]  # only once done: its destination counts as cached already
        crew = self.crew
        out = self._model(
            input_ids=self._store.indexes(batch.token_ids)[None],
            position_ids=self._store.indexes(batch.positions)[None],
            use_cache=False,
            logits_to_keep=self._store.indexes(batch.rows),
            paged=PagedAttention(self._store, batch, is_unwanted, crew),
        )
        if crew is not None:
            crew.adapt()
        logits: Logits = out.logits[0].float().cpu().numpy()
        return logits


def _prepare(model: Any, ranks: Ranks | None, crew: Crew | None) -> None:
    """Put our attention, linear layers and norms in the place of the model's own."""
    if crew is not None:
        divide_linears(model, crew)
    model.set_attn_implementation(PAGED_ATTENTION)
    if ranks is None:  # a divided layer has transformers' hooks, which packing would lose
        if crew is None:
            pack_linears(model)
        fuse_norms(model, model.dtype)


def _room_on(device: torch.device) -> int:
    """Bytes for KV by default."""
    if device.type != "cuda":
        return CPU_CACHE_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * FREE_SHARE)


def kv_shape(model: Any) -> KVShape:
    """The shape of the KV that ``model``, or this rank's part of it, keeps of a token."""
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
