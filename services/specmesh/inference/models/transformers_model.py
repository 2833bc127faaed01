"""Any decoder-only model that ``AutoModelForCausalLM`` loads, scoring trees of tokens.

The model's own code runs, with specmesh's attention (see ``attention.py``) and with linear layers
in the processor's preferred layout. One forward pass takes tokens of many sequences: chunks of long
prefixes, trees, single tokens.
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
"""The share of the memory that a loaded model leaves free on its GPU that goes to KV by default."""

MAX_BATCH = 64
CHUNK_TOKENS = 256


class TransformersModel:
    """A ``LanguageModel`` that keeps the KV of all its sequences and recent prefixes in one store.

    With ``ranks`` it is this rank's part of a model: only rank 0 gets requests, the other ranks
    ``follow`` it. With ``heads``, sequences keep the hidden states from which heads begin.
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
        """The heads trained for this model, if they were loaded."""
        self._model = model
        self._tap = None if heads is None else HiddenTap(model)
        self._chunk_tokens = chunk_tokens
        self._ranks = ranks
        shape = kv_shape(model)
        num_blocks = max(1, cache_bytes // shape.block_bytes)
        if ranks is not None:
            num_blocks = ranks.least(num_blocks)  # a batch names the same slots on all
        self.crew = crew
        """The units that share its forward passes; None if passes are not divided."""
        zeros = None if crew is None else crew.memory.zeros
        self._store = KVStore(shape, num_blocks, model.device, zeros)
        if crew is not None:
            crew.share_kv(self._store.kv)
        self.pool = BlockPool(num_blocks)
        """The users of each block of the store."""
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
        """Load a local folder, or a ``revision`` of a Hugging Face id. Raises ``ModelNotLoadable``.

        KV takes at most ``cache_bytes`` of memory (None: a default for the device); prefixes go
        through forward passes in chunks of ``chunk_tokens``. With ``ranks`` each rank loads its
        part, and returns once all have. ``chat_template`` replaces the model's own. ``heads_for``
        makes heads for the loaded model, which must be undivided, and its digest. ``units`` share
        each forward pass; the calling thread is the first of them.
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
            if heads_for is not None:  # before the output layer is packed
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
        """Measure the units' current speeds; return a plan for them."""
        assert self.crew is not None
        return measure(self.crew, self._model, kv_shape(self._model))

    def open(
        self,
        prefix: Sequence[int],
        cancellation: Cancellation,
        room: int = DEFAULT_ROOM_TOKENS,
    ) -> PagedSequence:
        """Open a sequence in blocks of the store. Raises ``NoRoom`` or ``TooLarge``."""
        return PagedSequence(self, self.pool, self._copies.append, prefix, room, cancellation)

    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]:
        """Run one forward pass for those ``requests`` that ``plan_forward`` has room for."""
        no_rows = np.empty((0, self.description.vocab_size), np.float32)
        results: list[Logits | None] = [
            no_rows if is_scored(request) else None for request in requests
        ]
        planned = plan_forward(requests, self._chunk_tokens)
        if not planned:
            return results
        batch = pack([part for _, _, part in planned], self._copies)
        began = time.perf_counter()
        # Requests without a part in it also wait for it.
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
        """Return the base if all of its blocks are held, else None. Any thread may call this."""
        return self.pool.find_base(base_length, digest)

    def follow(self) -> None:
        """Compute this rank's part of rank 0's forward passes until rank 0 ends."""
        assert self._ranks is not None
        self._ranks.follow(self.compute)

    def _run(self, batch: Batch, cancellations: Sequence[Cancellation]) -> Logits:
        def is_unwanted() -> bool:
            return all(cancellation.is_set() for cancellation in cancellations)

        if self._ranks is not None:
            return self._ranks.lead(batch, self.compute)
        return self.compute(batch, is_unwanted)

    def compute(self, batch: Batch, is_unwanted: Callable[[], bool] = lambda: False) -> Logits:
        """Return the logits of ``batch``, ``[rows, vocab]``, with this process's weights.

        Raises ``Interrupted`` once ``is_unwanted`` returns True, on which all ranks must agree;
        ``MemoryError`` if memory runs out; ``DeviceLost`` if no forward pass will succeed any more.
        """
        with telling_apart():
            return self._compute(batch, is_unwanted)

    @torch.inference_mode()
    def _compute(self, batch: Batch, is_unwanted: Callable[[], bool]) -> Logits:
        for copy in batch.copies:
            self._store.copy(copy)
            del self._copies[:1]  # only once done, since its destination already counts as cached
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
    """Replace the model's attention, linear layers and norms by our own."""
    if crew is not None:
        divide_linears(model, crew)
    model.set_attn_implementation(PAGED_ATTENTION)
    if ranks is None:  # a divided layer has transformers' hooks, which packing would lose
        if crew is None:
            pack_linears(model)
        fuse_norms(model, model.dtype)


def _room_on(device: torch.device) -> int:
    """Return the default number of bytes for KV."""
    if device.type != "cuda":
        return CPU_CACHE_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * FREE_SHARE)


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
