"""The least engine that keeps all of it: transformers' own model and KV cache, one call at a time.

``python -m tests.conformance.example --model FOLDER --port 50061`` serves it; docs/engines.md says
what it has to do.
"""

from __future__ import annotations

import asyncio
import copy
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation, ForwardRequest, ForwardSize, Logits, score_alone
from specmesh.inference.models.context.prefix_cache import PrefixCache
from specmesh.inference.models.loading import read_model
from specmesh.serving.process.command_line import parse
from specmesh.serving.process.server import serve
from specmesh.verifier.__main__ import VerifierService, VerifierSettings

CACHED_TOKENS = 1 << 13


class ExampleModel:
    """A ``LanguageModel`` that verifies chains."""

    max_batch = 1
    pool = None

    def __init__(self, folder: str) -> None:
        loaded = read_model(folder, "float32", "cpu", None)
        self.compute: Any = loaded.model.eval()
        described = loaded.describe("float32", None, None)
        self.description = replace(
            described, backend="example", interruptible=False, scores_trees=False
        )
        self.cache: PrefixCache[DynamicCache] = PrefixCache(CACHED_TOKENS)

    def open(
        self, prefix: Sequence[int], cancellation: Cancellation, room: int = 0
    ) -> ExampleSequence:
        """A sequence on top of the KV of the longest prefix that begins as this one."""
        return ExampleSequence(self, PrefixChain(prefix), cancellation)

    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]:
        """The logits of the one request."""
        return score_alone(requests)

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """The base, if a cached prefix begins with it."""
        return self.cache.find_base(base_length, digest)


class ExampleSequence:
    """A ``SequenceState``: the KV of a prefix and of the chain below it."""

    def __init__(self, model: ExampleModel, chain: PrefixChain, cancellation: Cancellation) -> None:
        self.cancellation = cancellation
        self.num_computed_tokens = 0
        self.latest_forward = ForwardSize()
        self._model = model
        self._chain = chain
        self._tree = EMPTY
        self._num_rows = 0
        self._origin, self._shared = model.cache.longest(chain)
        # By whole blocks, or callers could guess each other's text token by token. The last token
        # is read again: its logits are wanted.
        held = min(self._shared, len(chain) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
        self._kv = DynamicCache()
        if self._origin is not None and held:
            self._kv = copy.deepcopy(model.cache.use(self._origin).state)
            _cut(self._kv, held)
        self.num_cached_tokens = held

    def score(self, tree: TokenTree) -> Logits:
        """The rows of the nodes that have none yet, by one forward of all that has no KV yet."""
        tokens = [*self._chain, *tree.token_ids][self._kv.get_seq_length() :]
        num_rows = len(tree) + 1 - self._num_rows
        with torch.inference_mode():
            given = torch.tensor([tokens])
            logits = self._model.compute(given, past_key_values=self._kv).logits[0, -num_rows:]
        self._tree, self._num_rows = tree, len(tree) + 1
        self.num_computed_tokens += len(tokens)
        self.latest_forward = ForwardSize(1, num_rows)
        return np.asarray(logits, dtype=np.float32)

    def close(self, keep: Sequence[int]) -> None:
        """Keep the KV of the prefix and of what was accepted."""
        if self._num_rows:
            self._chain.append(self._tree.tokens_on(keep))
            _cut(self._kv, len(self._chain))
            self._model.cache.put(self._chain, self._kv, self._origin, self._shared)


def _cut(kv: DynamicCache, length: int) -> None:
    if kv.get_seq_length() > length:
        kv.crop(length - kv.get_seq_length())


class ExampleService(VerifierService):
    """The verifier's service, over another model."""

    def load(self) -> ExampleModel:
        """Called once, on the thread that all forwards run on."""
        return ExampleModel(self._verifier.model)


if __name__ == "__main__":
    settings = parse(VerifierSettings, sys.argv[1:], "example")
    sys.exit(asyncio.run(serve(settings, ExampleService(settings))))
