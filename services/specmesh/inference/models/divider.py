"""The interface of what divides a model's forward passes among more than its own thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from specmesh.inference.engine.batch import Group
from specmesh.inference.engine.kv_store import KVShape, KVStore


class GroupAttention(Protocol):
    """Attention of the sequences of one group of a batch."""

    tokens: slice
    """The group's tokens within the batch."""

    def __call__(self, layer: int, query: Tensor, scale: float) -> Tensor:
        """Attend with ``query`` ``[1, heads, tokens, head_dim]``; return ``[1, tokens, heads,
        head_dim]``."""
        ...


class Divider(Protocol):
    """Divides the forward passes of one model; only the thread that loads the model uses it."""

    def divide(self, model: Any) -> None:
        """Replace the linear layers of transformers' ``model`` by divided ones."""
        ...

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return new memory for KV, which all that compute can read."""
        ...

    def share_kv(self, kv: Tensor) -> None:
        """Let all that compute read the KV store ``kv``, which lies in memory from ``zeros``."""
        ...

    def tune(self, model: Any, kv: KVShape) -> None:
        """Choose the quickest division of ``model``, which is divided and works."""
        ...

    def attention(self, store: KVStore, group: Group) -> GroupAttention | None:
        """Return the divided attention of ``group``; None if the model's thread attends alone."""
        ...

    def adapt(self) -> None:
        """Note that a forward pass has ended; the next one may be divided in another way."""
        ...

    def close(self) -> None:
        """End what computes beside the model's thread; no forward pass may follow."""
        ...
