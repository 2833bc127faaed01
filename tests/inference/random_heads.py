"""Heads that nobody trained, for tiny targets: they guess, and so they draft."""

from __future__ import annotations

from pathlib import Path

import torch

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
