"""A ``LanguageModel`` that vLLM runs. Each path of a tree is a vLLM request, and one step computes
many of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import torch

from specmesh.decoding.compiled import choice as compiled
from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.blocks.pool import TooLarge
from specmesh.inference.engine.engine_metrics import record_forward
from specmesh.inference.model import (
    DEFAULT_ROOM_TOKENS,
    Cancellation,
    ForwardRequest,
    ForwardSize,
    Logits,
    ModelDescription,
)
from specmesh.inference.models.loading import naming
from specmesh.inference.models.vllm.core import Core, Part
from specmesh.inference.models.vllm.loading.engine_options import changes_by, digest_with, flag
from specmesh.inference.models.vllm.loading.steps import check_computes, read_plain, start
from specmesh.inference.models.vllm.options import CoreOptions, check_engine_options
from specmesh.inference.models.vllm.paths import PathRead, new_paths
from specmesh.inference.models.vllm.seen import SeenPrefixes
from specmesh.inference.models.vllm.versions import check_versions
from specmesh.inference.team import team_for, tell_of_compiling

log = logging.getLogger(__name__)

CPU_CACHE_BYTES = 1 << 30
GPU_BATCH = 256
"""The most calls of a step on a GPU, unless ``--max-num-seqs`` is among the engine options."""
CPU_BATCH = 64
STEP_TOKENS = 1024
CPU_STEP_TOKENS = 512
"""The most tokens of a step on a CPU: more would take long, and the next call would have to
wait."""
CHUNK_TOKENS = 256
"""The most tokens of one prefix in a step while other calls wait."""


class VllmModel:
    """A ``LanguageModel`` whose forward passes are steps of vLLM.

    It remembers the prefixes that it has seen, for callers that send digests. Only vLLM knows
    whether their KV is still cached.
    """

    def __init__(self, core: Core, description: ModelDescription) -> None:
        compiled.prepare(team_for, tell_of_compiling)
        self.max_batch = core.max_calls
        self.description = description
        self._core = core
        self.pool = core.kv
        self._seen = SeenPrefixes(core.kv.capacity_tokens)
        self._sequences: dict[str, VllmSequence] = {}
        """Sequences with a vLLM request, by the request's name."""

    @classmethod
    def load(
        cls,
        name: str,
        *,
        revision: str | None = None,
        dtype: str,
        device: str,
        num_threads: int,
        cache_bytes: int | None,
        tensor_parallel: int,
        engine_options: str = "",
        chat_template: str | None,
    ) -> VllmModel:
        """Load a local folder, or a ``revision`` of a Hugging Face id. Raises ``ModelNotLoadable``.

        transformers reads the model first: for its tokenizer, for the digest of its weights (the
        same as that of a replica with the ``transformers`` backend), and to check vLLM's logits. It
        reads no weights of a quantized model (``loading/quantized.py``).
        """
        check_versions()
        if cache_bytes is None and device == "cpu":
            cache_bytes = CPU_CACHE_BYTES
        check_engine_options(engine_options, cache_bytes=cache_bytes, num_threads=num_threads)
        with naming(name):
            description, plain = read_plain(name, revision, dtype, chat_template)
        device_type = torch.device(device).type
        core = start(
            CoreOptions(
                model=name,
                revision=revision,
                dtype=dtype,
                device_type=device_type,
                context_tokens=description.context_tokens,
                cache_bytes=cache_bytes,
                max_batch=batch_on(device_type),
                step_tokens=step_tokens_on(device_type),
                chunk_tokens=CHUNK_TOKENS,
                tensor_parallel=tensor_parallel,
                num_threads=num_threads,
                engine_options=engine_options,
            )
        )
        if changes := changes_by(engine_options):
            log.warning("another target", extra={"because_of": " ".join(map(flag, changes))})
        digest = digest_with(description.weights_digest, changes)
        description = replace(
            description,
            weights_digest=digest,
            backend="vllm",
            interruptible=False,
            scores_trees=False,  # each path would be a request; one chain is cheaper
        )
        model = cls(core, description)
        check_computes(name, dtype, model, None if changes else plain)
        return model

    def open(
        self, prefix: Sequence[int], cancellation: Cancellation, room: int = DEFAULT_ROOM_TOKENS
    ) -> VllmSequence:
        """Open a sequence that waits until vLLM has room. Raises ``TooLarge`` if vLLM never has."""
        num_tokens, capacity = len(prefix) + room, self._core.kv.capacity_tokens
        if num_tokens > capacity:
            raise TooLarge(num_tokens, capacity)
        return VllmSequence(self, PrefixChain(prefix), cancellation)

    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]:
        """Run one step of vLLM; return None for requests that need another. Raises ``DeviceLost``
        if the step fails."""
        sequences = []
        for request in requests:
            assert isinstance(request.sequence, VllmSequence)
            request.sequence.want(request.tree)
            sequences.append(request.sequence)
        if any(each.is_waiting for each in sequences):
            self._step()
        return [each.take() for each in sequences]

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """Return the base if a recent prefix begins with it, else None."""
        return self._seen.find_base(base_length, digest)

    def on_failure(self, tell: Callable[[str], None]) -> None:
        """Call ``tell`` with the reason once vLLM can no longer compute."""
        self._core.on_failure(tell)

    def close(self) -> None:
        """End vLLM's processes."""
        self._core.close()

    def _step(self) -> None:
        began = time.perf_counter()
        parts = self._core.step()
        duration_ms = (time.perf_counter() - began) * 1e3
        num_calls = len({id(self._sequences[name]) for name in parts})
        size = ForwardSize(num_calls, sum(len(part.rows) for part in parts.values()))
        for name, part in parts.items():
            sequence = self._sequences[name]
            sequence.receive(name, part, size)
            if part.is_last:
                del self._sequences[name]
        if parts:
            num_tokens = sum(part.num_computed for part in parts.values())
            kind = _kind(parts.values(), self._core.block_tokens)
            record_forward(duration_ms, kind, num_calls, num_tokens)

    def begin(self, sequence: VllmSequence, chain: PrefixChain, first_row: int) -> str:
        """Have vLLM compute for ``sequence``; return the name of its request."""
        name = self._core.add(chain, first_row)
        self._sequences[name] = sequence
        return name

    def end(self, name: str) -> None:
        """End the request ``name``."""
        if self._sequences.pop(name, None) is not None:
            self._core.drop(name)

    def remember(self, chain: PrefixChain) -> None:
        """Let ``find_base`` find ``chain`` from now on."""
        self._seen.add(chain)


class VllmSequence:
    """A ``SequenceState`` of a prefix and the tree that grows below it; each path is a vLLM
    request."""

    def __init__(self, model: VllmModel, chain: PrefixChain, cancellation: Cancellation) -> None:
        self.cancellation = cancellation
        self._chain = chain
        self.num_cached_tokens = 0
        self.num_computed_tokens = 0
        self.latest_forward = ForwardSize()
        self._model = model
        self._tree = EMPTY
        self._num_rows = 0
        """The number of nodes whose rows have been returned, node 0 included."""
        self._reads: dict[str, PathRead] | None = None
        """The reads of its vLLM requests, by name, until their rows are taken."""

    @property
    def is_waiting(self) -> bool:
        """True while requested rows are missing."""
        return any(not read.is_done for read in (self._reads or {}).values())

    def score(self, tree: TokenTree) -> Logits:
        """Return the logits of the new nodes, after as many steps as the prefix needs."""
        while True:
            (logits,) = self._model.forward([ForwardRequest(self, tree)])
            if logits is not None:
                return logits

    def want(self, tree: TokenTree) -> None:
        """Request the rows of the nodes of ``tree`` that have not been returned."""
        if self._reads is not None:
            return  # already requested
        self._tree = tree
        self._reads = {}
        for path in new_paths(tree, self._num_rows):
            chain = PrefixChain(self._chain)
            chain.append(tree.tokens_on(tree.path(path.leaf)))
            first_row = len(chain) - len(path.nodes)
            name = self._model.begin(self, chain, first_row)
            self._reads[name] = PathRead(path.nodes, first_row)

    def receive(self, name: str, part: Part, size: ForwardSize) -> None:
        """Take in the part of a step that request ``name`` got."""
        assert self._reads is not None
        if not self.num_computed_tokens:
            self.num_cached_tokens = part.start
        self.num_computed_tokens += part.num_computed
        self.latest_forward = size
        self._reads[name].receive(part)

    def take(self) -> Logits | None:
        """Return the requested rows once all are there, else None."""
        if self.is_waiting:
            return None
        assert self._reads is not None
        reads, self._reads = list(self._reads.values()), None
        first, self._num_rows = self._num_rows, len(self._tree) + 1
        if len(reads) == 1:
            return reads[0].rows
        rows = np.empty((self._num_rows - first, self._model.description.vocab_size), np.float32)
        for read in reads:
            rows[[node - first for node in read.nodes]] = read.rows
        return rows

    def close(self, keep: Sequence[int]) -> None:
        """Close the sequence; vLLM keeps the KV of full blocks, including rejected tokens."""
        for name in self._reads or ():
            self._model.end(name)
        if self._num_rows:
            self._chain.append(self._tree.tokens_on(keep))
            self._model.remember(self._chain)


def batch_on(device_type: str) -> int:
    """Return the most calls of a step."""
    return CPU_BATCH if device_type == "cpu" else GPU_BATCH


def step_tokens_on(device_type: str) -> int:
    """Return the most tokens of a step, over all requests."""
    return CPU_STEP_TOKENS if device_type == "cpu" else STEP_TOKENS


def _kind(parts: Collection[Part], block_tokens: int) -> str:
    """Return the kind of a step, as ``engine.forward_plan.kind_of`` does for specmesh's own
    engine."""
    if any(part.num_computed - len(part.rows) >= block_tokens for part in parts):
        return "prefill"
    return "verify" if any(len(part.rows) > 1 for part in parts) else "decode"
