"""EAGLE-3 written out anew with transformers' layers, one path at a time, and folders of random
heads as others publish them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import LlamaConfig, PreTrainedConfig, Qwen3Config
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
)
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

# Llama-3.1-8B's shapes, an eighth to a sixty-fourth of each.
TARGET = LlamaConfig(
    vocab_size=501,
    hidden_size=64,
    intermediate_size=224,
    num_hidden_layers=8,
    num_attention_heads=8,
    num_key_value_heads=2,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    bos_token_id=0,
    eos_token_id=0,
    initializer_range=0.2,
)
DRAFT_VOCAB = 125
LAYER_IDS = (2, 4, 5)
"""Those that a head reads of eight layers if its files don't say."""

SPECULATIVE_TOKENS = 4


def layer_config(model_type: str = "llama", **changes: Any) -> PreTrainedConfig:
    """The decoder layer of a head for ``TARGET``."""
    kinds = {"llama": LlamaConfig, "qwen3": Qwen3Config}
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    return kinds[model_type](
        **{
            "vocab_size": TARGET.vocab_size,
            "hidden_size": 64,
            "intermediate_size": 224,
            "num_hidden_layers": 1,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 512,
            "rms_norm_eps": 1e-5,
            "rope_parameters": rope,
            "attn_implementation": "eager",
            **changes,
        }
    )


class ReferenceHead(nn.Module):
    """A head whose parameters have the names of ``speculators``."""

    def __init__(self, layer: PreTrainedConfig, **options: Any) -> None:
        super().__init__()
        self.options = {
            "norm_before_residual": False,
            "norm_before_fc": False,
            "fc_norm": False,
            "norm_output": False,
            **options,
        }
        hidden, eps = layer.hidden_size, layer.rms_norm_eps
        target = 3 * TARGET.hidden_size
        kind = Qwen3DecoderLayer if layer.model_type == "qwen3" else LlamaDecoderLayer
        self.layer_config = layer
        self.layers = nn.ModuleList([kind(layer, 0)])
        block = self.layers[0]
        for name in ("q_proj", "k_proj", "v_proj"):
            outputs = getattr(block.self_attn, name).out_features
            projection = nn.Linear(2 * hidden, outputs, bias=layer.attention_bias)
            setattr(block.self_attn, name, projection)
        block.hidden_norm = LlamaRMSNorm(hidden, eps)
        self.fc = nn.Linear(target, hidden, bias=False)
        if self.options["norm_before_fc"]:
            self.input_norm = LlamaRMSNorm(target, eps)
        if self.options["fc_norm"]:
            self.fc_norm = nn.ModuleList(LlamaRMSNorm(target // 3, eps) for _ in range(3))
        self.norm = LlamaRMSNorm(hidden, eps)
        self.lm_head = nn.Linear(hidden, DRAFT_VOCAB, bias=False)
        self.rotary = LlamaRotaryEmbedding(layer)

    def fuse(self, hidden: Tensor) -> Tensor:
        if self.options["norm_before_fc"]:
            hidden = self.input_norm(hidden)
        if self.options["fc_norm"]:
            parts = hidden.chunk(3, -1)
            normed = [norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)]
            hidden = torch.cat(normed, -1)
        return self.fc(hidden)

    @torch.no_grad()
    def guesses(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """The logits ``[drafts + 1, draft_vocab]`` after the last token of a text, and after each
        token of a draft that follows it.

        ``embedded`` ``[tokens, hidden]`` are of the text and the draft, ``hidden`` ``[text - 1, 3 *
        target]`` of the text but for its last token.
        """
        states = self.fuse(hidden)
        found = []
        while len(states) < len(embedded):
            after = self._layer(embedded[1 : len(states) + 1], states)
            fed = self.norm(after[-1:]) if self.options["norm_output"] else after[-1:]
            found.append(self.lm_head(self.norm(after[-1])))
            states = torch.cat([states, fed])
        return torch.stack(found)

    def _layer(self, embedded: Tensor, states: Tensor) -> Tensor:
        block = self.layers[0]
        normed = block.hidden_norm(states)
        read = torch.cat([block.input_layernorm(embedded), normed], -1)[None]
        positions = torch.arange(len(states))[None]
        causal = torch.full((len(states), len(states)), -torch.inf).triu(1)[None, None]
        attended, _ = block.self_attn(
            hidden_states=read,
            position_embeddings=self.rotary(read, positions),
            attention_mask=causal,
        )
        residual = normed if self.options["norm_before_residual"] else states
        mixed = residual + attended[0]
        return mixed + block.mlp(block.post_attention_layernorm(mixed))


def random_reference(layer: PreTrainedConfig, **options: Any) -> ReferenceHead:
    """A head of random weights, in none of which it is indifferent."""
    torch.manual_seed(5)
    head = ReferenceHead(layer, **options)
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn(parameter.shape) * 0.15)
            else:
                parameter.copy_(torch.rand(parameter.shape) + ("norm" in name) * 0.5)
    return head


def guessed_ids() -> Tensor:
    """The tokens of ``TARGET`` that heads guess."""
    generator = torch.Generator().manual_seed(7)
    return torch.randperm(TARGET.vocab_size, generator=generator)[:DRAFT_VOCAB].sort().values


def vocabulary() -> dict[str, Tensor]:
    """The published maps between the vocabularies."""
    guessed = guessed_ids()
    is_guessed = torch.zeros(TARGET.vocab_size, dtype=torch.bool)
    is_guessed[guessed] = True
    return {"d2t": guessed - torch.arange(DRAFT_VOCAB), "t2d": is_guessed}


def speculators_json(head: ReferenceHead, verifier: str | None, **changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "draft_vocab_size": DRAFT_VOCAB,
        "transformer_layer_config": head.layer_config.to_diff_dict(),
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {"proposal_type": "greedy", "speculative_tokens": SPECULATIVE_TOKENS}
            ],
            "verifier": {"name_or_path": verifier, "architectures": ["LlamaForCausalLM"]},
        },
        **head.options,
        **changes,
    }


def write_speculators(
    folder: Path, head: ReferenceHead, verifier: str | None, **changes: Any
) -> Path:
    """Write ``head`` as ``speculators`` would."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(head.state_dict() | vocabulary(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(speculators_json(head, verifier, **changes)))
    return folder


def write_authors(folder: Path, head: ReferenceHead, **changes: Any) -> Path:
    """Write ``head`` as EAGLE's authors would: a pickled file, a flat configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name.replace("layers.0.", "midlayer."): tensor for name, tensor in head.state_dict().items()
    }
    torch.save(tensors | vocabulary(), folder / "pytorch_model.bin")
    layer = head.layer_config
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "vocab_size": layer.vocab_size,
        "draft_vocab_size": DRAFT_VOCAB,
        "hidden_size": layer.hidden_size,
        "intermediate_size": layer.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": layer.num_attention_heads,
        "num_key_value_heads": layer.num_key_value_heads,
        "hidden_act": "silu",
        "rms_norm_eps": layer.rms_norm_eps,
        "max_position_embeddings": layer.max_position_embeddings,
        "rope_theta": layer.rope_parameters["rope_theta"],
        "rope_scaling": layer.rope_parameters,
    }
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def tree_of(guesses: Any, depth: int, width: int) -> list[tuple[int, ...]]:
    """The paths of the tree whose nodes have their ``width`` likeliest tokens for children.
    ``guesses`` returns the logits after a path."""
    paths: Sequence[tuple[int, ...]] = [()]
    found = []
    for _ in range(depth):
        paths = [
            (*path, int(token)) for path in paths for token in guesses(path).topk(width).indices
        ]
        found += paths
    return found
