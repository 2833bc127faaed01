"""Heads that nobody trained, for tiny targets: they guess, and so they draft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from specmesh.inference.models.heads.eagle3.config import Eagle3Config
from specmesh.inference.models.heads.eagle3.folder import save_eagle3
from specmesh.inference.models.heads.eagle3.identity import HeadsTarget
from specmesh.inference.models.heads.eagle3.network import Eagle3Network
from specmesh.inference.models.heads.folder import HeadsConfig, save_heads
from specmesh.inference.models.loading import read_model

MAX_DEPTH = 5


def save_random_heads(target: Path, folder: Path) -> Path:
    """Write a recurrent head for the model in ``target`` to ``folder``; returns that."""
    loaded = read_model(str(target), "float32", "cpu", None)
    digest = loaded.describe("float32", None, None).weights_digest
    embedding = loaded.model.get_input_embeddings().weight
    config = HeadsConfig(
        kind="recurrent",
        target_digests={"float32": digest},
        hidden_size=loaded.config.hidden_size,
        embedding_size=embedding.shape[1],
        vocab_size=loaded.config.vocab_size,
        inner_size=16,
        max_depth=MAX_DEPTH,
    )
    torch.manual_seed(3)
    save_heads(config, config.network(), None, folder)
    return folder


def save_random_eagle3(
    target: Path, folder: Path, guessed: torch.Tensor | None = None, **changes: Any
) -> Path:
    """Write an EAGLE-3 head for the model in ``target`` to ``folder``; returns that."""
    loaded = read_model(str(target), "float32", "cpu", None)
    digest = loaded.describe("float32", None, None).weights_digest
    network = random_eagle3(loaded.model, guessed, **changes)
    save_eagle3(network, guessed, HeadsTarget(digests={"float32": digest}), folder)
    return folder


def random_eagle3(
    target: Any, guessed: torch.Tensor | None = None, **changes: Any
) -> Eagle3Network:
    """Return a head for ``target`` with weights that bf16 holds exactly, so large that what it
    attends to shows."""
    config, layers = target.config, target.config.num_hidden_layers
    torch.manual_seed(3)
    network = Eagle3Network(
        Eagle3Config(
            **{
                "target_hidden_size": config.hidden_size,
                "layer_ids": (0, layers // 2, layers),
                "vocab_size": config.vocab_size,
                "draft_vocab_size": config.vocab_size if guessed is None else len(guessed),
                "hidden_size": config.hidden_size,
                "inner_size": 24,
                "num_heads": 4,
                "num_kv_heads": 2,
                "head_dim": 8,
                "rope": {"rope_type": "default", "rope_theta": 10000.0},
                "max_position_embeddings": 128,
                "norm_eps": 1e-6,
                "max_depth": MAX_DEPTH,
                **changes,
            }
        )
    )
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() > 1:
                parameter.copy_((torch.randn(parameter.shape) * 0.3).bfloat16())
            elif "norm" in name:
                parameter.copy_((1 + torch.rand(parameter.shape)).bfloat16())
    return network
