"""Any decoder-only model that ``AutoModelForCausalLM`` loads, scoring trees of tokens.

The tree goes through the model's own attention: transformers takes a 4-dimensional mask
and explicit positions, so each node sees the prefix and its ancestors, and no model code
is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.utils import logging as transformers_logging

from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation, Logits, ModelDescription, ModelNotLoadable
from specmesh.inference.prefix_cache import PrefixCache

KeysValues = list[tuple[Tensor, Tensor]]
"""Per layer, keys and values ``[1, kv_heads, tokens, head_dim]``."""

PREFILL_CHUNK_TOKENS = 512


class TransformersModel:
    """A causal language model with the KV of its recent prefixes."""

    def __init__(self, model: Any, description: ModelDescription, cache_tokens: int) -> None:
        self.description = description
        self._model = model
        self._cache: PrefixCache[KeysValues] = PrefixCache(cache_tokens)

    @classmethod
    def load(cls, name: str, *, dtype: str, device: str, cache_tokens: int) -> TransformersModel:
        """Load a local folder or a Hugging Face id; raises ``ModelNotLoadable``."""
        # Standard error is for JSON lines.
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            config = AutoConfig.from_pretrained(name)
            model: Any = AutoModelForCausalLM.from_pretrained(
                name,
                dtype=getattr(torch, dtype),
                # Models without it would add the tree's boolean mask to the scores as 0 or 1.
                attn_implementation="sdpa",
            )
            tokenizer = AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError) as error:
            kind = "a folder" if Path(name).exists() else "a Hugging Face id (it is no folder)"
            raise ModelNotLoadable(f"cannot load {name!r} as {kind}: {error}") from error
        if not tokenizer.is_fast:
            raise ModelNotLoadable(f"{name!r} has no tokenizer.json (a fast tokenizer)")
        if any(type(layer) is not DynamicLayer for layer in DynamicCache(config=config).layers):
            raise ModelNotLoadable(f"{name!r} has layers without full attention: not supported")
        description = ModelDescription(
            name=Path(name).name if Path(name).exists() else name,
            vocab_size=config.vocab_size,
            context_tokens=config.max_position_embeddings,
            end_of_text_ids=_end_of_text_ids(model),
            tokenizer_json=tokenizer.backend_tokenizer.to_str(),
            num_parameters=model.num_parameters(),
            backend="transformers",
        )
        return cls(model.to(device).eval(), description, cache_tokens)

    def open(
        self,
        prefix: Sequence[int],
        cancellation: Cancellation,  # noqa: ARG002
    ) -> TransformersScorer:
        """See ``LanguageModel.open``. Forwards are not interruptible yet: torch offers no way
        out of one, so a cancelled job ends after the forward at hand."""
        return TransformersScorer(self._model, self._cache, prefix)

    def find_base(self, base_length: int, digest: bytes) -> Sequence[int] | None:
        """See ``LanguageModel.find_base``."""
        return self._cache.find_base(base_length, digest)


class TransformersScorer:
    """See ``Scorer``. KV holds the prefix, then the scored nodes in node order."""

    def __init__(self, model: Any, cache: PrefixCache[KeysValues], prefix: Sequence[int]) -> None:
        self._model = model
        self._cache = cache
        self._chain = PrefixChain(prefix)
        self._scored = EMPTY
        self._origin, self._shared = cache.longest(self._chain)
        # The last prefix token goes through the forward again: its logits are asked for.
        self.num_cached_tokens = min(self._shared, len(prefix) - 1)
        self.num_computed_tokens = 0
        self._kv: Any = DynamicCache(config=model.config)
        if self._origin is not None and self.num_cached_tokens:
            kept = slice(0, self.num_cached_tokens)
            state = cache.use(self._origin).state
            layers: list[Any] = self._kv.layers
            for layer, (keys, values) in zip(layers, state, strict=True):
                layer.lazy_initialization(keys, values)
                # Views: the layer grows by concatenation, so the snapshot stays as it is.
                layer.keys, layer.values = keys[:, :, kept], values[:, :, kept]

    @torch.inference_mode()
    def score(self, tree: TokenTree) -> Logits:
        """See ``Scorer.score``."""
        pending = self._chain.tokens[self._kv.get_seq_length() :]
        while len(pending) > PREFILL_CHUNK_TOKENS:
            self._forward(torch.tensor([pending[:PREFILL_CHUNK_TOKENS]]), None, None, 1)
            pending = pending[PREFILL_CHUNK_TOKENS:]
        first = len(self._scored)
        new = tree.token_ids[first:]
        rows = len(new) + bool(pending)
        if not rows:
            return np.empty((0, self._model.config.vocab_size), np.float32)
        tokens = torch.tensor([[*pending, *new]])
        if tree.is_chain:
            logits = self._forward(tokens, None, None, rows)
        else:
            positions, mask = self._tree_attention(tree, first, len(pending))
            logits = self._forward(tokens, positions, mask, rows)
        self._scored = tree
        return logits

    def close(self, keep: Sequence[int]) -> None:
        """See ``Scorer.close``. Costs nothing for a path of the first nodes, a chain's case."""
        held = self._kv.get_seq_length()
        prefix = self._chain.length
        if held < prefix:
            return  # never scored
        self._chain.append([self._scored.token_ids[node - 1] for node in keep])
        if tuple(keep) == tuple(range(1, len(keep) + 1)):
            index: Any = slice(0, prefix + len(keep))
        else:
            index = torch.tensor([*range(prefix), *(prefix + node - 1 for node in keep)])
        state = [(layer.keys[:, :, index], layer.values[:, :, index]) for layer in self._kv.layers]
        self._cache.put(self._chain, state, self._origin, self._shared)

    def _forward(
        self, tokens: Tensor, positions: Tensor | None, mask: Tensor | None, rows: int
    ) -> Logits:
        self.num_computed_tokens += tokens.shape[1]
        device = self._model.device
        out = self._model(
            input_ids=tokens.to(device),
            position_ids=None if positions is None else positions.to(device),
            attention_mask=None if mask is None else mask.to(device),
            past_key_values=self._kv,
            use_cache=True,
            logits_to_keep=rows,
        )
        logits: Logits = out.logits[0].float().cpu().numpy()
        return logits

    def _tree_attention(
        self, tree: TokenTree, first: int, num_pending: int
    ) -> tuple[Tensor, Tensor]:
        """Positions ``[1, new]`` and mask ``[1, 1, new, all]`` (True: may attend)."""
        prefix = self._chain.length
        pending = range(prefix - num_pending, prefix)
        positions = [
            *pending,
            *(prefix + tree.depth(n) - 1 for n in range(first + 1, len(tree) + 1)),
        ]
        mask = np.zeros((num_pending + len(tree) - first, prefix + len(tree)), dtype=np.bool_)
        for row, position in enumerate(pending):
            mask[row, : position + 1] = True
        for row, node in enumerate(range(first + 1, len(tree) + 1), start=num_pending):
            mask[row, :prefix] = True
            mask[row, [prefix + ancestor - 1 for ancestor in tree.path(node)]] = True
        return torch.tensor([positions]), torch.from_numpy(mask)[None, None]


def _end_of_text_ids(model: Any) -> tuple[int, ...]:
    ids = model.generation_config.eos_token_id
    if ids is None:
        return ()
    return (ids,) if isinstance(ids, int) else tuple(ids)
