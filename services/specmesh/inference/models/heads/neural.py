"""Heads of tensors for the engine: drafts of several calls share each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specmesh.inference.model import Logits
from specmesh.inference.models.device_errors import telling_apart
from specmesh.inference.models.heads.draft_heads import DraftHeads


class NeuralHeads:
    """``EngineHeads`` whose states are rows of tensors on the target's device."""

    def __init__(self, heads: DraftHeads) -> None:
        self._heads = heads
        self.max_depth = heads.max_depth

    @torch.inference_mode()
    def begin(self, hidden: Tensor) -> Tensor:
        """Return the state ``[state]`` of a draft that begins at ``hidden``, ``[hidden]``."""
        with telling_apart():
            return self._heads.begin(hidden[None])[0]

    @torch.inference_mode()
    def step(
        self, states: Sequence[Any], token_ids: Sequence[int], depths: Sequence[int]
    ) -> tuple[Logits, Sequence[Tensor]]:
        """Step as in ``EngineHeads``. Raises ``MemoryError`` and ``DeviceLost``."""
        with telling_apart():
            rows = torch.stack(tuple(states))
            numbers = torch.tensor((token_ids, depths), device=rows.device)
            logits, after = self._heads.step(rows, *numbers)
            found: Logits = logits.float().cpu().numpy()
            return found, after.unbind(0)
