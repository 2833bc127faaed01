"""Heads as they are served: a network between the target's own first and last layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from specmesh.inference.models.heads.target_ends import TargetEnds


class ServedHeads:
    """``DraftHeads`` of any architecture. States are hidden states, the target's or its likes."""

    def __init__(
        self, network: nn.Module, ends: TargetEnds, target_digest: str, max_depth: int
    ) -> None:
        self.target_digest = target_digest
        self.max_depth = max_depth
        self._network = network
        self._ends = ends

    def begin(self, hidden: Tensor) -> Tensor:
        """See ``DraftHeads``."""
        return hidden

    @torch.inference_mode()
    def step(self, states: Tensor, token_ids: Tensor, depths: Tensor) -> tuple[Tensor, Tensor]:
        """See ``DraftHeads``."""
        # Packed layers want the shape of a forward pass: [1, tokens, features].
        embedded = self._ends.embed(token_ids)[None]
        features, after = self._network(states[None], embedded, depths[None])
        return self._ends.logits(features)[0], after[0]
