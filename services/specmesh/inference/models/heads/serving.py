"""Heads of any format, for the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specmesh.inference.models.heads.eagle3.served import Eagle3Heads
from specmesh.inference.models.heads.neural import NeuralHeads
from specmesh.inference.models.heads.paged import PagedHeads
from specmesh.inference.models.heads.registry import load_heads
from specmesh.inference.models.heads.tensor_heads import TensorHeads


def serve_heads(folder: str | Path, target: Any, target_digest: str) -> TensorHeads:
    """Load the heads in ``folder``, as ``load_heads`` does."""
    heads = load_heads(folder, target, target_digest)
    return PagedHeads(heads) if isinstance(heads, Eagle3Heads) else NeuralHeads(heads)
