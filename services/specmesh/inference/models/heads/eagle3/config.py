"""The architecture of an EAGLE-3 head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

FuseNorm = Literal["none", "whole", "each"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Config:
    """The sizes of a head and of what it reads of its target.

    ``layer_ids`` name the hidden states of the target that are fused, as vLLM and ``speculators``
    count them: state j enters decoder layer j, so that it is the output of layer j - 1, 0 is that
    of the embedding, and the number of layers is what leaves the last layer, before the last norm.
    ``fuse_norm``: whether these states are normalised before they are fused, and if so, all
    together or each by itself. ``rope`` are the parameters of the rotary embedding by transformers'
    names. ``max_depth`` is the depth, in tokens, to which the head drafts.
    """

    target_hidden_size: int
    layer_ids: tuple[int, ...]
    vocab_size: int
    draft_vocab_size: int
    """The number of tokens that the head guesses, out of ``vocab_size``."""
    hidden_size: int
    """The size of states, and of embeddings."""
    inner_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: Mapping[str, Any]
    max_position_embeddings: int
    norm_eps: float
    max_depth: int
    attention_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    """True for a layer as in Qwen3, which normalises queries and keys."""
    norm_before_residual: bool = False
    """True if the normalised state is added to what attention finds, else the state itself."""
    norm_output: bool = False
    """True if a draft goes on with the state that has passed the last norm."""
    fuse_norm: FuseNorm = "none"

    @property
    def fused_size(self) -> int:
        """The size of the target's hidden states together."""
        return len(self.layer_ids) * self.target_hidden_size
