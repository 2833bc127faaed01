"""The tensors that a forward pass reads, at addresses that stay, filled by a copy to the device."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specmesh.inference.models.cuda.layout import Layout
from specmesh.inference.models.cuda.paged_attention import Attended
from specmesh.inference.models.cuda.wanted import WantedRows

MIN_WORDS = 8
"""The words of bits for each token, enough for trees of 256 nodes."""
MIN_BLOCKS = 1 << 16
"""The least number of blocks in all tables together: a million tokens of context."""


class StaticBatch:
    """Room for passes of up to ``num_tokens``, in as many sequences, tiles and rows of logits, with
    ``num_words`` of bits for each token and ``num_blocks`` in all tables together.

    ``token_ids``, ``positions`` and ``rows`` are ``[num_tokens]``, and so are the ``kinds``,
    ``keys`` and ``temperatures`` of rows whose own tokens are wanted.
    """

    def __init__(
        self,
        num_tokens: int,
        kv_heads: int,
        device: torch.device,
        num_words: int = MIN_WORDS,
        num_blocks: int = MIN_BLOCKS,
    ) -> None:
        self.num_tokens, self.num_words, self.num_blocks = num_tokens, num_words, num_blocks
        # The numbers of 8 bytes come first, so that they lie where they must.
        widths = (2, 2, 1, 1, 1, 1, 1, 3, 4, num_words)
        bounds = list(pairwise([0, *accumulate(width * num_tokens for width in widths)]))
        self._fixed = bounds[-1][1]
        size = self._fixed + num_blocks
        self._host = torch.zeros(size, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._device = torch.zeros(size, dtype=torch.int32, device=device)
        self._at_host = [self._host[start:end].numpy() for start, end in bounds]
        fields = [self._device[start:end] for start, end in bounds]
        self.keys = fields[0].view(torch.int64)
        self.temperatures = fields[1].view(torch.float64)
        self.token_ids, self.positions, self.rows, self.kinds, spans = fields[2:7]
        self.attended = Attended(
            spans=spans,
            tiles=fields[7].view(-1, 3),
            sequences=fields[8].view(-1, 4),
            bits=fields[9].view(-1, num_words),
            tables=self._device[self._fixed :],
            counters=torch.zeros(num_tokens * kv_heads, dtype=torch.int32, device=device),
        )

    def holds(self, layout: Layout) -> bool:
        """Return whether there is room for ``layout``."""
        return (
            len(layout.token_ids) <= self.num_tokens
            and layout.bits.shape[1] <= self.num_words
            and len(layout.tables) <= self.num_blocks
        )

    def fill(self, layout: Layout, wanted: WantedRows) -> None:
        """Copy ``layout`` and the ``wanted`` rows to the device, before what runs there next. The
        pass before must have ended."""
        host = self._host.numpy()
        host[: self._fixed] = 0
        keys, temperatures, *others, bits = self._at_host
        num_rows = len(layout.rows)
        keys.view(np.int64)[:num_rows] = wanted.keys
        temperatures.view(np.float64)[:num_rows] = wanted.temperatures
        arrays: tuple[np.ndarray[Any, Any], ...] = (
            layout.token_ids,
            layout.positions,
            layout.rows,
            wanted.kinds,
            layout.spans,
            layout.tiles.ravel(),
            layout.sequences.ravel(),
        )
        for field, array in zip(others, arrays, strict=True):
            field[: len(array)] = array
        num_tokens, num_words = layout.bits.shape
        bits.reshape(-1, self.num_words)[:num_tokens, :num_words] = layout.bits
        end = self._fixed + len(layout.tables)
        host[self._fixed : end] = layout.tables
        self._device[:end].copy_(self._host[:end], non_blocking=True)


def batch_for(
    layout: Layout, wanted: WantedRows, kv_heads: int, device: torch.device
) -> StaticBatch:
    """Return a batch with room for ``layout``, filled with it."""
    batch = StaticBatch(
        len(layout.token_ids),
        kv_heads,
        device,
        max(MIN_WORDS, layout.bits.shape[1]),
        max(MIN_BLOCKS, len(layout.tables)),
    )
    batch.fill(layout, wanted)
    return batch


def on_host(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return ``tensor`` on the host, once it is computed."""
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    host.copy_(tensor, non_blocking=True)
    if tensor.is_cuda:
        torch.cuda.current_stream(tensor.device).synchronize()
    return host.numpy()
