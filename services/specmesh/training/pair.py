"""The two models' shapes and losses.

The target is deep, so that it costs several milliseconds a token on one CPU core and speculation
has latency to hide; the drafter has two thin layers, the fewest that can copy from its context.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from specmesh.training.tokenizer import END_OF_TEXT_ID, VOCAB_SIZE

CONTEXT_TOKENS = 1024


SHAPES: dict[str, dict[str, Any]] = {
    "target": {
        "hidden_size": 320,
        "num_hidden_layers": 10,
        "intermediate_size": 864,
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
    },
    "drafter": {
        "hidden_size": 96,
        "num_hidden_layers": 2,
        "intermediate_size": 256,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
    },
}


def build(role: str, seed: int) -> LlamaForCausalLM:
    """Return a freshly initialised ``target`` (12 M parameters) or ``drafter`` (0.6 M)."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=END_OF_TEXT_ID,
        eos_token_id=END_OF_TEXT_ID,
        **SHAPES[role],
    )
    return LlamaForCausalLM(config)


def logits(model: LlamaForCausalLM, tokens: Tensor) -> Tensor:
    """Return next-token logits ``[batch, sequence, vocab]``."""
    out: Tensor = model(tokens, use_cache=False).logits
    return out


def language_loss(model: LlamaForCausalLM, batch: Tensor) -> Tensor:
    """Return the mean next-token cross entropy in nats over a batch ``[batch, sequence + 1]``."""
    scores = logits(model, batch[:, :-1]).float()
    return functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
