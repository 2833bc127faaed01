"""The tensors that a forward pass reads, at addresses that stay, filled by one copy to the device."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
import torch

from specmesh.inference.models.cuda.layout import NO_SLOT, Layout
from specmesh.inference.models.cuda.paged_attention import Attended

MIN_WORDS = 8
"""The words of bits for each token, enough for trees of 256 nodes."""
_MIN_BLOCKS = 2
"""A size of 1 would be compiled by itself."""


class StaticBatch:
    """Room for passes of up to ``num_tokens``, in as many sequences, tiles and rows of logits, with
    ``num_words`` of bits for each token and ``num_blocks`` in all tables together.

    ``token_ids``, ``positions`` and ``rows`` are ``[num_tokens]``.
    """

    def __init__(
        self, num_tokens: int, num_words: int, num_blocks: int, device: torch.device
    ) -> None:
        self.num_tokens, self.num_words, self.num_blocks = num_tokens, num_words, num_blocks
        sizes = [num_tokens] * 7 + [3 * num_tokens, num_words * num_tokens, num_blocks]
        bounds = list(pairwise([0, *accumulate(sizes)]))
        host = torch.empty(bounds[-1][1], dtype=torch.int32, pin_memory=device.type == "cuda")
        self._host, self._device = host, torch.empty_like(host, device=device)
        self._fields = [host.numpy()[start:end] for start, end in bounds]
        self._fields[7] = self._fields[7].reshape(-1, 3)
        self._fields[8] = self._fields[8].reshape(num_tokens, num_words)
        fields = [self._device[start:end] for start, end in bounds]
        self.token_ids, self.positions, self.rows, slots, spans, lengths, starts = fields[:7]
        self.attended = Attended(
            slots=slots,
            spans=spans,
            bits=fields[8].view(num_tokens, num_words),
            tiles=fields[7].view(-1, 3),
            lengths=lengths,
            starts=starts,
            tables=fields[9],
        )
        self.fill(None)

    def holds(self, layout: Layout) -> bool:
        """Return whether there is room for ``layout``."""
        return (
            len(layout.token_ids) <= self.num_tokens
            and layout.bits.shape[1] <= self.num_words
            and len(layout.tables) <= self.num_blocks
        )

    def fill(self, layout: Layout | None) -> None:
        """Copy ``layout`` to the device, before what runs there next; None for a pass of nothing.

        The pass before must have ended.
        """
        ids, positions, rows, slots, spans, lengths, starts, tiles, bits, tables = self._fields
        num_used = self._host.numel() - self.num_blocks
        fixed = self._host[:num_used].numpy()
        fixed.fill(0)
        slots.fill(NO_SLOT)
        if layout is not None:
            num_tokens = len(layout.token_ids)
            ids[:num_tokens] = layout.token_ids
            positions[:num_tokens] = layout.positions
            rows[: len(layout.rows)] = layout.rows
            slots[:num_tokens] = layout.slots
            spans[:num_tokens] = layout.spans
            lengths[: len(layout.lengths)] = layout.lengths
            starts[: len(layout.starts)] = layout.starts
            tiles[: len(layout.tiles)] = layout.tiles
            bits[:num_tokens, : layout.bits.shape[1]] = layout.bits
            tables[: len(layout.tables)] = layout.tables
            num_used += len(layout.tables)
        self._device[:num_used].copy_(self._host[:num_used], non_blocking=True)


def batch_for(layout: Layout, device: torch.device) -> StaticBatch:
    """Return a batch of just the size of ``layout``, filled with it."""
    num_words = max(MIN_WORDS, layout.bits.shape[1])
    batch = StaticBatch(
        len(layout.token_ids), num_words, max(_MIN_BLOCKS, len(layout.tables)), device
    )
    batch.fill(layout)
    return batch


def as_logits(
    tensor: torch.Tensor, num_rows: int
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Return the first ``num_rows`` of a ``tensor`` of float32 on the host, once computed."""
    host = torch.empty((num_rows, *tensor.shape[1:]), dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    host.copy_(tensor[:num_rows], non_blocking=True)
    if tensor.is_cuda:
        torch.cuda.current_stream(tensor.device).synchronize()
    return host.numpy()
