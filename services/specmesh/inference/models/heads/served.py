"""Heads as they are served: a network between the target's own first and last layers."""

from __future__ import annotations

import torch
from torch import Tensor

from specmesh.inference.models.heads.network import HeadNetwork
from specmesh.inference.models.heads.target_ends import TargetEnds


class ServedHeads:
    """``DraftHeads`` of any architecture. States are hidden states of the target or imitations of
    them."""

    def __init__(
        self, network: HeadNetwork, ends: TargetEnds, target_digest: str, max_depth: int
    ) -> None:
        self.target_digest = target_digest
        self.max_depth = max_depth
        self._network = network
        self._ends = ends

    def begin(self, hidden: Tensor) -> Tensor:
        """Implement ``DraftHeads``."""
        return hidden

    @torch.inference_mode()
    def step(self, states: Tensor, token_ids: Tensor, depths: Tensor) -> tuple[Tensor, Tensor]:
        """Implement ``DraftHeads``."""
        embedded = self._ends.embed(token_ids)
        if not self._network.depth_matters:
            features, after = self._read(states, embedded, 0)
        else:
            features, after = torch.empty_like(states), torch.empty_like(states)
            for depth in set(depths.tolist()):
                rows = (depths == depth).nonzero()[:, 0]
                features[rows], after[rows] = self._read(states[rows], embedded[rows], depth)
        return self._ends.logits(features[None])[0], after

    def _read(self, states: Tensor, embedded: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        # Packed layers need the shape of a forward pass: [1, tokens, features].
        features, after = self._network(states[None], embedded[None], depth)
        return features[0], after[0]
