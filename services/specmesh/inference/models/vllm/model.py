"""A model that vLLM runs, as a ``LanguageModel``: trees below a prefix, each path of them a request
of vLLM's, many in one step."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import torch

from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.blocks import TooLarge
from specmesh.inference.engine.engine_metrics import record_forward
from specmesh.inference.model import (
    DEFAULT_ROOM_TOKENS,
    Cancellation,
    DeviceLost,
    ForwardRequest,
    ForwardSize,
    Logits,
    ModelDescription,
    ModelNotLoadable,
    reason_of,
)
from specmesh.inference.models.loading import naming, read_files
from specmesh.inference.models.vllm.core import Core, Part
from specmesh.inference.models.vllm.options import CoreOptions, digest_with
from specmesh.inference.models.vllm.paths import PathRead, new_paths
from specmesh.inference.models.vllm.probe import PlainLogits
from specmesh.inference.models.vllm.quantized import describe_quantized
from specmesh.inference.models.vllm.seen import SeenPrefixes
from specmesh.inference.models.vllm.versions import check_versions

CPU_CACHE_BYTES = 1 << 30
MAX_BATCH = 64
STEP_TOKENS = 1024
CPU_STEP_TOKENS = 512
"""So many tokens take a CPU a long time, and whoever comes next waits for it."""
CHUNK_TOKENS = 256
"""Of one prefix in a step, where others wait."""
FIRST_TOKENS = (0, 1)
"""For a first forward, which shows whether vLLM has kernels for the model on this device."""


class VllmModel:
    """A ``LanguageModel`` whose forward passes are steps of vLLM.

    It names prefixes that it has seen, for callers that send digests; whether their KV is still
    there is vLLM's to know.
    """

    max_batch = MAX_BATCH

    def __init__(self, core: Core, description: ModelDescription) -> None:
        self.description = description
        self._core = core
        self.pool = core.kv
        self._seen = SeenPrefixes(core.kv.capacity_tokens)
        self._sequences: dict[str, VllmSequence] = {}
        """Those that vLLM computes for."""

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
        """Load a local folder, or a ``revision`` of a Hugging Face id; raises ``ModelNotLoadable``.

        transformers reads it first, for its tokenizer, for the digest of its weights, the same as
        that of a replica with our own engine, and to see that vLLM says the same. Of a quantized
        model it reads no weights (``quantized.py``).
        """
        check_versions()
        with naming(name):
            description, plain = _read(name, revision, dtype, chat_template)
        if cache_bytes is None and device == "cpu":
            cache_bytes = CPU_CACHE_BYTES
        device_type = torch.device(device).type
        try:
            core = Core(
                CoreOptions(
                    model=name,
                    revision=revision,
                    dtype=dtype,
                    device_type=device_type,
                    context_tokens=description.context_tokens,
                    cache_bytes=cache_bytes,
                    max_batch=MAX_BATCH,
                    step_tokens=step_tokens_on(device_type),
                    chunk_tokens=CHUNK_TOKENS,
                    tensor_parallel=tensor_parallel,
                    num_threads=num_threads,
                    engine_options=engine_options,
                )
            )
        except ModelNotLoadable:
            raise
        except Exception as error:
            raise ModelNotLoadable(f"vLLM cannot load {name!r}: {reason_of(error)}") from error
        digest = digest_with(description.weights_digest, engine_options)
        is_same = digest == description.weights_digest
        description = replace(
            description,
            weights_digest=digest,
            backend="vllm",
            interruptible=False,
            scores_trees=False,  # a request for each path: the best chain is cheaper
        )
        model = cls(core, description)
        try:
            if is_same and plain is not None:
                plain.check(model)
            else:
                model.open(FIRST_TOKENS, Cancellation(), 0).score(EMPTY)
        except DeviceLost as error:
            raise ModelNotLoadable(cannot_compute(name, dtype, error)) from error
        return model

    def open(
        self, prefix: Sequence[int], cancellation: Cancellation, room: int = DEFAULT_ROOM_TOKENS
    ) -> VllmSequence:
        """A sequence that waits for vLLM to have room; raises ``TooLarge`` if it never has."""
        num_tokens, capacity = len(prefix) + room, self._core.kv.capacity_tokens
        if num_tokens > capacity:
            raise TooLarge(num_tokens, capacity)
        return VllmSequence(self, PrefixChain(prefix), cancellation)

    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]:
        """One step of vLLM; None for requests that need another. Raises ``DeviceLost`` if it
        fails."""
        sequences = []
        for request in requests:
            assert isinstance(request.sequence, VllmSequence)
            request.sequence.want(request.tree)
            sequences.append(request.sequence)
        if any(each.is_waiting for each in sequences):
            self._step()
        return [each.take() for each in sequences]

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """The base, if a recent prefix begins with it."""
        return self._seen.find_base(base_length, digest)

    def on_failure(self, tell: Callable[[str], None]) -> None:
        """Have ``tell`` called with the reason once vLLM computes no more."""
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
        """Have vLLM compute for ``sequence``; the name under which it does."""
        name = self._core.add(chain, first_row)
        self._sequences[name] = sequence
        return name

    def end(self, name: str) -> None:
        """Have it compute no more under ``name``."""
        if self._sequences.pop(name, None) is not None:
            self._core.drop(name)

    def remember(self, chain: PrefixChain) -> None:
        """From here on ``find_base`` knows ``chain``."""
        self._seen.add(chain)


class VllmSequence:
    """A ``SequenceState``: a prefix, and a tree that grows below it, read one path at a time."""

    def __init__(self, model: VllmModel, chain: PrefixChain, cancellation: Cancellation) -> None:
        self.cancellation = cancellation
        self._chain = chain
        self.num_cached_tokens = 0
        self.num_computed_tokens = 0
        self.latest_forward = ForwardSize()
        self._model = model
        self._tree = EMPTY
        self._num_rows = 0
        """Rows that were given: those of so many nodes, node 0 included."""
        self._reads: dict[str, PathRead] | None = None
        """By name, the requests that vLLM has of it, until their rows are taken."""

    @property
    def is_waiting(self) -> bool:
        """Whether rows are wanted that aren't there."""
        return any(not read.is_done for read in (self._reads or {}).values())

    def score(self, tree: TokenTree) -> Logits:
        """Logits of the new nodes, after as many steps as the prefix takes."""
        while True:
            (logits,) = self._model.forward([ForwardRequest(self, tree)])
            if logits is not None:
                return logits

    def want(self, tree: TokenTree) -> None:
        """Ask for the rows of the nodes of ``tree`` that have not been given."""
        if self._reads is not None:
            return  # asked before
        self._tree = tree
        self._reads = {}
        for path in new_paths(tree, self._num_rows):
            chain = PrefixChain(self._chain)
            chain.append(tree.tokens_on(tree.path(path.leaf)))
            first_row = len(chain) - len(path.nodes)
            name = self._model.begin(self, chain, first_row)
            self._reads[name] = PathRead(path.nodes, first_row)

    def receive(self, name: str, part: Part, size: ForwardSize) -> None:
        """Note what a step did."""
        assert self._reads is not None
        if not self.num_computed_tokens:
            self.num_cached_tokens = part.start
        self.num_computed_tokens += part.num_computed
        self.latest_forward = size
        self._reads[name].receive(part)

    def take(self) -> Logits | None:
        """The rows that were asked for, once all are there."""
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
        """End the sequence; vLLM keeps the KV of whole blocks, whatever was accepted."""
        for name in self._reads or ():
            self._model.end(name)
        if self._num_rows:
            self._chain.append(self._tree.tokens_on(keep))
            self._model.remember(self._chain)


def _read(
    name: str, revision: str | None, dtype: str, chat_template: str | None
) -> tuple[ModelDescription, PlainLogits | None]:
    """What the model is, and what transformers says with it, None if it is quantized. What
    transformers has of it is gone afterwards, so that vLLM has the memory."""
    files = read_files(name, revision)
    if files.is_quantized:
        return describe_quantized(files, dtype, chat_template), None
    # "sdpa" leaves caps on scores out, "eager" overflows in float16.
    is_capped = getattr(files.text_config, "attn_logit_softcapping", None)
    loaded = files.load(dtype, "cpu", None, attention="eager" if is_capped else "sdpa")
    plain = PlainLogits.of(name, loaded.model)
    return loaded.describe(dtype, None, chat_template), plain


def cannot_compute(name: str, dtype: str, error: DeviceLost) -> str:
    """Why vLLM, which has loaded the model ``name`` in ``dtype``, cannot compute it."""
    what = f"vLLM cannot compute {name!r} in {dtype}"
    # vLLM's kernels for Intel's AMX, which it takes for weights of 8 or 4 bits where the processor
    # has it, check this only in a forward.
    if "to be bfloat16 or half" in str(error):
        return f"{what}: on this processor its kernels need --dtype bfloat16 or float16 ({error})"
    return f"{what}: {error}"


def step_tokens_on(device_type: str) -> int:
    """The most tokens of a step, of all requests together."""
    return CPU_STEP_TOKENS if device_type == "cpu" else STEP_TOKENS


def _kind(parts: Collection[Part], block_tokens: int) -> str:
    """What ``engine.forward_plan.kind_of`` says of a forward pass of our own engine."""
    if any(part.num_computed - len(part.rows) >= block_tokens for part in parts):
        return "prefill"
    return "verify" if any(len(part.rows) > 1 for part in parts) else "decode"
