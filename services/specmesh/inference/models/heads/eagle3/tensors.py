"""The tensors of published EAGLE-3 heads, by the names of ``speculators`` or of the authors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from specmesh.inference.models.heads.eagle3.config import Eagle3Config
from specmesh.inference.models.heads.eagle3.network import Eagle3Network
from specmesh.inference.models.heads.fitness import TensorsUnfit, check_guessed

EMBEDDING = "embed_tokens.weight"
OFFSETS, IS_GUESSED = "d2t", "t2d"
"""For each token that is guessed, its id minus its number; and for each token of the target,
whether it is guessed."""

_OF_NO_USE = frozenset({"verifier_norm.weight", "verifier_lm_head.weight"})
"""Tensors for training."""

_LAYER = "layers.0."
_AUTHORS_LAYER = "midlayer."

_PLACES = {
    "fc": ("fc",),
    "token_norm": (_LAYER + "input_layernorm",),
    "state_norm": (_LAYER + "hidden_norm",),
    "qkv": tuple(f"{_LAYER}self_attn.{each}_proj" for each in "qkv"),
    "query_norm": (_LAYER + "self_attn.q_norm",),
    "key_norm": (_LAYER + "self_attn.k_norm",),
    "out": (_LAYER + "self_attn.o_proj",),
    "block_norm": (_LAYER + "post_attention_layernorm",),
    "gate_up": (_LAYER + "mlp.gate_proj", _LAYER + "mlp.up_proj"),
    "down": (_LAYER + "mlp.down_proj",),
    "last_norm": ("norm",),
    "lm_head": ("lm_head",),
}
"""The layers of the network, and the published layers whose outputs follow each other in them."""


def to_network(network: Eagle3Network, published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of ``network`` out of ``published`` ones. Raises ``TensorsUnfit`` if any
    is missing or more are left than have a known use."""
    left = {name.replace(_AUTHORS_LAYER, _LAYER): tensor for name, tensor in published.items()}
    found = {}
    for name in network.state_dict():
        sources = _sources(name, network.config)
        if missing := [each for each in sources if each not in left]:
            raise TensorsUnfit(f"the tensor {missing[0]!r} is missing")
        found[name] = torch.cat([left.pop(each) for each in sources])
    unknown = left.keys() - _OF_NO_USE - {EMBEDDING, OFFSETS, IS_GUESSED}
    if unknown:
        raise TensorsUnfit(f"the tensor {min(unknown)!r} has no place in such heads")
    return found


def from_network(network: Eagle3Network) -> dict[str, Tensor]:
    """Return the tensors of ``network`` by the names of ``speculators``."""
    config = network.config
    attention = [config.num_heads * config.head_dim, *2 * [config.num_kv_heads * config.head_dim]]
    parts = {"qkv": attention, "gate_up": [config.inner_size] * 2}
    found: dict[str, Tensor] = {}
    for name, tensor in network.state_dict().items():
        sizes = parts.get(name.partition(".")[0], [len(tensor)])
        found |= zip(_sources(name, config), tensor.split(sizes), strict=True)
    return found


def guessed_ids(published: Mapping[str, Tensor], config: Eagle3Config) -> Tensor | None:
    """Return the ids ``[n]`` of the tokens that are guessed; None for all of them. Raises
    ``TensorsUnfit``."""
    if config.draft_vocab_size == config.vocab_size:
        return None
    offsets = published.get(OFFSETS)
    if offsets is None or offsets.shape != (config.draft_vocab_size,):
        raise TensorsUnfit(
            f"{OFFSETS!r} must have draft_vocab_size {config.draft_vocab_size} entries"
        )
    ids = offsets.long() + torch.arange(len(offsets))
    check_guessed(OFFSETS, ids, config.vocab_size)
    return ids


def vocabulary_maps(guessed: Tensor, vocab_size: int) -> dict[str, Tensor]:
    """Return the published tensors that say which tokens are guessed: those with ids ``guessed``
    ``[n]``."""
    is_guessed = torch.zeros(vocab_size, dtype=torch.bool).index_fill(0, guessed, value=True)
    return {OFFSETS: guessed - torch.arange(len(guessed)), IS_GUESSED: is_guessed}


def _sources(name: str, config: Eagle3Config) -> list[str]:
    """Return the published names of the tensor ``name`` of a network."""
    place, _, field = name.rpartition(".")
    norm, _, number = place.partition(".")
    if norm == "fuse_norms":
        return ["input_norm.weight" if config.fuse_norm == "whole" else f"fc_norm.{number}.weight"]
    return [f"{each}.{field}" for each in _PLACES[place]]
