"""The memory that holds what is kept of all sequences' tokens, and the users of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
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
        for together in _runs(copies):
            self._copy(_joined(together))
            # Only once done, since their destinations already count as cached.
            del self.ordered[: len(together)]

    def _copy(self, copy: Copy) -> None:
        """Carry out ``copy`` in all stores, or in none if memory runs out."""
        sources, destinations = map(self.stores[0].indexes, (copy.sources, copy.destinations))
        taken = [store.kv.index_select(1, sources) for store in self.stores]
        for store, kv in zip(self.stores, taken, strict=True):
            store.expect(copy.destinations)
            store.kv.index_copy_(1, destinations, kv)


def _runs(copies: Sequence[Copy]) -> list[list[Copy]]:
    """Divide ``copies`` where one reads or writes what another one before has written: in each run
    all may be read before any is written."""
    runs: list[list[Copy]] = []
    written: set[int] = set()
    for copy in copies:
        touched = {*copy.sources.tolist(), *copy.destinations.tolist()}
        if not runs or not written.isdisjoint(touched):
            runs.append([])
            written.clear()
        runs[-1].append(copy)
        written.update(copy.destinations.tolist())
    return runs


def _joined(copies: Sequence[Copy]) -> Copy:
    if len(copies) == 1:
        return copies[0]
    return Copy(
        np.concatenate([copy.sources for copy in copies]),
        np.concatenate([copy.destinations for copy in copies]),
    )
