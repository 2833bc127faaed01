"""A target's logits along texts, with the hidden states that heads begin from.

They are for training and measuring heads; a verifier takes hidden states from the engine's own
forward passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Seen:
    """A target's hidden states ``[rows, tokens, hidden]`` that heads start from, and its logits
    ``[rows, tokens, vocab]`` along texts ``token_ids`` ``[rows, tokens]``."""

    token_ids: Tensor
    hidden: Tensor
    logits: Tensor


@torch.no_grad()
def look(target: Any, token_ids: Tensor) -> Seen:
    """Run ``target``, a model as ``read_model`` returns it, along ``token_ids``; the hidden states
    are those that its output layer is given."""
    inputs: list[Tensor] = []
    output = target.get_output_embeddings()
    hook = output.register_forward_pre_hook(lambda _layer, given: inputs.append(given[0]))
    try:
        logits = target(token_ids, use_cache=False).logits
    finally:
        hook.remove()
    return Seen(token_ids, inputs[0], logits)
