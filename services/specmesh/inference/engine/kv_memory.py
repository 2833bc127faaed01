"""The memory that holds what is kept of all sequences' tokens, and the users of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specmesh.inference.engine.batch import Copy
from specmesh.inference.engine.blocks.pool import BlockPool
from specmesh.inference.engine.kv_store import KVShape, KVStore


class KVMemory:
    """Stores of one or more shapes that have the same slots: what they keep of a token lies in one
    slot of each."""

    def __init__(
        self,
        shapes: Sequence[KVShape],
        num_blocks: int,
        device: torch.device,
        zeros: Callable[[Sequence[int], torch.dtype], Tensor] | None = None,
    ) -> None:
        """Allocate the stores with ``zeros``, by default in new memory on ``device``."""
        self.stores = [KVStore(shape, num_blocks, device, zeros) for shape in shapes]
        self.pool = BlockPool(num_blocks)
        """The users of each block."""
        self.ordered: list[Copy] = []
        """Copies to carry out, in order, before the next forward pass writes anything: the pool may
        immediately give their sources to other sequences."""

    def carry_out(self, copies: Sequence[Copy]) -> None:
        """Carry out the first of the ``ordered`` copies, or those that another process ordered."""
        for copy in copies:
            self._copy(copy)
            del self.ordered[:1]  # only once done, since its destination already counts as cached

    def _copy(self, copy: Copy) -> None:
        """Carry out ``copy`` in all stores, or in none if memory runs out."""
        sources, destinations = map(self.stores[0].indexes, (copy.sources, copy.destinations))
        taken = [store.kv.index_select(1, sources) for store in self.stores]
        for store, kv in zip(self.stores, taken, strict=True):
            store.expect(copy.destinations)
            store.kv.index_copy_(1, destinations, kv)
