"""The tensors that hold the KV of all sequences, in slots of one token each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.batch import Indexes, run_start

NO_SLOTS: Indexes = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class KVShape:
    """The KV of one token in a model: keys and values ``[layers, kv_heads, head_dim]`` each."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def block_bytes(self) -> int:
        """Bytes of memory that one block takes."""
        tokens = 2 * BLOCK_TOKENS
        return tokens * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


class KVStore:
    """One tensor ``kv``, ``[2 * layers, slots, kv_heads, head_dim]``: the keys of layer l are
    ``kv[2 * l]``, its values ``kv[2 * l + 1]``.

    Block b holds the slots from ``16 b`` on. Invariant: in a forward pass the slots beyond a
    sequence's end are 0, since PyTorch's attention reads them too, and masking their scores would
    not remove values that are not finite.
    """

    def __init__(
        self,
        shape: KVShape,
        num_blocks: int,
        device: torch.device,
        zeros: Callable[[Sequence[int], torch.dtype], Tensor] | None = None,
    ) -> None:
        """Allocate ``kv`` with ``zeros``, by default in new memory on ``device``."""
        size = (2 * shape.layers, num_blocks * BLOCK_TOKENS, shape.kv_heads, shape.head_dim)
        self.kv = _zeros(size, shape.dtype, device) if zeros is None else zeros(size, shape.dtype)
        self._written = np.zeros(num_blocks * BLOCK_TOKENS, np.bool_)
        """True for each slot that may hold anything but zeros."""
        self.blocks = self.kv.view(2 * shape.layers, num_blocks, -1).unbind(0)
        """The tensors of ``kv`` by layer, each ``[blocks, 16 * kv_heads * head_dim]``."""
        self._sequence = self.kv[:, None].transpose(2, 3)

    def run(self, first: int, count: int) -> Sequence[Tensor]:
        """Return ``count`` consecutive slots as a sequence: views ``[1, kv_heads, count,
        head_dim]`` of the tensors of ``kv``."""
        return self._sequence.narrow(3, first, count).unbind(0)

    def writer(self, slots: Indexes) -> Callable[[int, Tensor, Tensor], None]:
        """Return a function that stores keys and values, each ``[1, kv_heads, tokens, head_dim]``,
        of a layer in ``slots``."""
        first = run_start(slots)
        if first is not None:
            held = self.run(first, len(slots))

            def write_run(layer: int, key: Tensor, value: Tensor) -> None:
                held[2 * layer].copy_(key)
                held[2 * layer + 1].copy_(value)

            return write_run
        indexes = self.indexes(slots)

        def write(layer: int, key: Tensor, value: Tensor) -> None:
            self.kv[2 * layer].index_copy_(0, indexes, key[0].transpose(0, 1))
            self.kv[2 * layer + 1].index_copy_(0, indexes, value[0].transpose(0, 1))

        return write

    def expect(self, writes: Indexes, padding_slots: Indexes = NO_SLOTS) -> None:
        """Prepare a forward pass that writes to ``writes`` and needs zeros in ``padding_slots``."""
        self._written[writes] = True
        if not len(padding_slots):
            return
        written = padding_slots[self._written[padding_slots]]
        if len(written):
            self.kv.index_fill_(1, self.indexes(written), 0)
            self._written[written] = False

    def indexes(self, indexes: Indexes) -> Tensor:
        """Return ``indexes`` on the store's device."""
        return torch.from_numpy(indexes).to(self.kv.device)


def _zeros(size: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    # numpy lets the system clear each page at its first use, so unused blocks take no memory.
    zeros = np.zeros(math.prod(size) * dtype.itemsize, np.uint8)
    return torch.from_numpy(zeros).view(dtype).view(size)
