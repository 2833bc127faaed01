"""The attention of drafts from all positions of a text at once, for training and measuring."""

from __future__ import annotations

import torch
from torch import Tensor


class DraftAttention:
    """An ``Attend`` that is called once for each step of drafts along a text's own tokens
    (training-time test; Li et al. 2025, Sec. 3.1).

    In step s the draft that begins at place j reads token j + s, in the state that its step before
    returned. It attends to the pairs up to j, whose states are the target's, and to the pairs of
    its own later tokens, whose states are its own, but to those of no other draft. Drafts that run
    out of the text leave at the end: a step may have fewer tokens than the one before.
    """

    def __init__(self) -> None:
        self._pairs: list[tuple[Tensor, Tensor]] = []

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Implement ``Attend``."""
        self._pairs.append((key, value))
        (keys, values), *own = self._pairs
        drafts, places = query.shape[2], keys.shape[2]
        later = torch.ones(drafts, places, dtype=torch.bool, device=query.device).triu(1)
        # Query heads that share a key are a dimension of their own.
        query = query.view(len(query), key.shape[1], -1, *query.shape[2:]) * query.shape[-1] ** -0.5
        scores = (query @ keys[:, :, None].mT).masked_fill(later, -torch.inf)
        more = [(query * each[:, :, None, :drafts]).sum(-1, keepdim=True) for each, _ in own]
        weights = torch.cat([scores, *more], -1).softmax(-1, dtype=torch.float32).to(value.dtype)
        attended = weights[..., :places] @ values[:, :, None]
        for number, (_, each) in enumerate(own, start=places):
            attended = attended + weights[..., number, None] * each[:, :, None, :drafts]
        return attended.flatten(1, 2).transpose(1, 2)
