"""The models to divide: the shipped target, and larger shapes with random weights."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specmesh import models

CONTEXT_TOKENS = 1024
VOCAB_SIZE = 4096
"""Size of the shipped tokenizer's vocabulary, which all of them use."""


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """A Llama of ``layers`` layers out of the ``whole_layers`` of a model of that size: enough that
    they don't fit into caches."""

    name: str
    layers: int
    whole_layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    widths: tuple[int, ...]
    """Tokens of the timed forwards."""

    def save(self, folder: Path) -> Path:
        """Save such a model, with random weights, to a folder below ``folder``."""
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            max_position_embeddings=CONTEXT_TOKENS,
            tie_word_embeddings=True,
        )
        place = folder / self.name
        LlamaForCausalLM(config).save_pretrained(place)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(models.path(models.TARGET) / name, place)
        return place


SHAPES = (
    LlamaShape("135M", 6, 30, 576, 1536, 9, 3, (1, 8, 32)),
    LlamaShape("1B", 2, 16, 2048, 8192, 32, 8, (1, 8)),
)
"""The shapes of SmolLM2-135M and of Llama-3.2-1B."""
