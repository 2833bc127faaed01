"""Heads of tensors for the engine: drafts of several calls share each step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from specmesh.inference.engine.batch import Batch
from specmesh.inference.engine.heads.engine_heads import KeepsNothing, Reading
from specmesh.inference.engine.kv_memory import KVMemory
from specmesh.inference.engine.kv_store import KVShape
from specmesh.inference.model import Logits
from specmesh.inference.models.device_errors import telling_apart
from specmesh.inference.models.heads.draft_heads import DraftHeads
from specmesh.inference.models.hidden_tap import HiddenTap


class NeuralHeads(KeepsNothing):
    """``TensorHeads`` whose states, rows of tensors on the target's device, are all that they know
    of a text."""

    kept: tuple[KVShape, ...] = ()

    def __init__(self, heads: DraftHeads) -> None:
        self._heads = heads
        self.max_depth = heads.max_depth

    def attach(self, target: Any, memory: KVMemory) -> None:  # noqa: ARG002
        """Implement ``TensorHeads``."""
        self._tap = HiddenTap(target)

    def read(self, batch: Batch) -> Tensor:  # noqa: ARG002
        """Return the input of the target's output layer."""
        assert self._tap.latest is not None
        return self._tap.latest[0]

    @torch.inference_mode()
    def begin(self, hidden: Tensor) -> Tensor:
        """Return the state ``[state]`` of a draft that begins at ``hidden``, ``[hidden]``."""
        with telling_apart():
            return self._heads.begin(hidden[None])[0]

    @torch.inference_mode()
    def step(self, readings: Sequence[Reading]) -> tuple[Logits, Sequence[Tensor]]:
        """Step as in ``EngineHeads``. Raises ``MemoryError`` and ``DeviceLost``."""
        with telling_apart():
            states = torch.stack([state for reading in readings for state in reading.states])
            numbers = (
                list(chain.from_iterable(reading.token_ids for reading in readings)),
                list(chain.from_iterable(reading.depths for reading in readings)),
            )
            logits, after = self._heads.step(states, *torch.tensor(numbers, device=states.device))
            found: Logits = logits.float().cpu().numpy()
            return found, after.unbind(0)
