"""Rotary position embeddings, whose frequencies are those of transformers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specmesh.inference.models.heads.eagle3.config import Eagle3Config

STATIC_ROPE_TYPES = frozenset({"default", "linear", "llama3", "yarn"})
"""The types of rotary embeddings whose frequencies don't depend on the length of the text."""


class Rotary(nn.Module):
    """Rotates queries and keys by their positions."""

    inverse_frequencies: Tensor

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        with torch.device("cpu"):  # real numbers, also where weights are yet to come
            plain = LlamaRotaryEmbedding(
                LlamaConfig(
                    hidden_size=config.num_heads * config.head_dim,
                    num_attention_heads=config.num_heads,
                    head_dim=config.head_dim,
                    max_position_embeddings=config.max_position_embeddings,
                    rope_parameters=dict(config.rope),
                )
            )
        self.register_buffer("inverse_frequencies", plain.inv_freq, persistent=False)
        self._scale = float(plain.attention_scaling)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines ``[rows, 1, tokens, head_dim / 2]`` of ``positions``
        ``[rows, tokens]``."""
        angles = positions[:, None, :, None] * self.inverse_frequencies
        cosines, sines = angles.cos(), angles.sin()
        if self._scale != 1:
            cosines, sines = cosines * self._scale, sines * self._scale
        return cosines.to(dtype), sines.to(dtype)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate ``[rows, heads, tokens, head_dim]``: feature i with feature i + head_dim / 2."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)
