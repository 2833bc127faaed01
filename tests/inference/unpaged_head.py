"""A random EAGLE-3 head over a whole text at once: no cache, no blocks, no batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.inference.random_heads import random_eagle3
from tests.inference.rounding import length_of_sums
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoModelForCausalLM

from specmesh.decoding.trees.tree import TokenTree


class Unpaged:
    """A target and the head that ``save_random_eagle3`` writes for it, alone and in double
    precision, so that differences are the rounding of what is compared with them."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self._target = AutoModelForCausalLM.from_pretrained(folder).double().eval()
        self._head = random_eagle3(self._target, **changes).double()
        self._known: dict[tuple[int, ...], Tensor] = {}

    @torch.inference_mode()
    def after(self, text: Sequence[int], path: Sequence[int]) -> np.ndarray:
        """Logits ``[vocab]`` of a draft below the last token of ``text``, after ``path``."""
        states = self._states(tuple(text[:-1]))
        ids = torch.tensor([[*text, *path]])
        for end in range(len(text), ids.shape[1] + 1):
            embedded = self._target.get_input_embeddings()(ids[:, 1:end])
            read = self._head(embedded, states, torch.arange(1, end)[None], _attend)
            states = torch.cat([states, read[:, -1:]], 1)
        logits: np.ndarray = self._head.logits(read)[0, -1].numpy()
        return logits

    def assert_drafts(
        self, found: np.ndarray, text: Sequence[int], tree: TokenTree, first: int = 0
    ) -> None:
        """``found`` are the logits of the nodes of ``tree`` below ``text``, from ``first`` on, but
        for rounding in single precision."""
        paths = [tree.tokens_on(tree.path(node)) for node in range(first, len(tree) + 1)]
        exact = np.stack([self.after(text, path) for path in paths])
        steps = 1 + max(map(len, paths))  # each may add the error of a layer
        error = (1 + steps) * length_of_sums(self._target.config) * torch.finfo(torch.float32).eps
        np.testing.assert_allclose(found, exact, rtol=0, atol=error * float(np.abs(exact).max()))

    def _states(self, tokens: tuple[int, ...]) -> Tensor:
        """The states ``[1, tokens, hidden]`` that are fused from the target's layers."""
        if tokens not in self._known:
            decoder = self._target.get_decoder()
            last_norm = getattr(decoder, "norm", None) or decoder.ln_f
            left: list[Tensor] = []  # what leaves the last layer, which transformers only normed
            hook = last_norm.register_forward_pre_hook(lambda _, given: left.append(given[0]))
            found = self._target(torch.tensor([tokens]), output_hidden_states=True).hidden_states
            hook.remove()
            entering = [*found[:-1], left[0]]
            layers = [entering[each] for each in self._head.config.layer_ids]
            self._known[tokens] = self._head.fuse(torch.cat(layers, -1))
        return self._known[tokens]


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    attended = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return attended.transpose(1, 2)
