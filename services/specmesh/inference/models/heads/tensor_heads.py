"""The interface of heads of tensors to the target that they are served with."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from specmesh.inference.engine.batch import Batch
from specmesh.inference.engine.heads.engine_heads import EngineHeads
from specmesh.inference.engine.kv_memory import KVMemory
from specmesh.inference.engine.kv_store import KVShape


class TensorHeads(EngineHeads, Protocol):
    """``EngineHeads`` that read each forward pass of their target.

    What they keep of each token lies in the slot of the token's KV, so it is shared, copied and
    evicted with it.
    """

    kept: tuple[KVShape, ...]
    """The shapes of what they keep of each token, besides the target's KV."""

    def attach(self, target: Any, memory: KVMemory) -> None:
        """Read ``target`` from now on, a model as transformers loads it whose layers are in their
        final form. The last stores of ``memory`` are those for ``kept``."""
        ...

    def read(self, batch: Batch) -> Tensor:
        """Read the target's forward pass of ``batch``, which has just ended. Returns the hidden
        states ``[rows, hidden]`` that drafts after the batch's rows begin at."""
        ...
