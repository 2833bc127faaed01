"""The use of KV blocks, counted in arrays: a call behind a long prefix refers to thousands of
blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Blocks = NDArray[np.int64]
"""Numbers of blocks, none of them twice."""

_LOOK_AHEAD = 256
"""The number of blocks that are looked up at a time to be evicted one after the other."""

_FEW = 64
"""The number of blocks below which a step per block takes less time than steps for arrays."""


class BlockUsage:
    """The references to each block, and whether its contents are **held**: worth keeping.

    A block without references is cached if it is held, and free otherwise.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_cached = 0
        self._references = np.zeros(num_blocks, np.int64)
        self._held_since = np.zeros(num_blocks, np.int64)
        """The time at which each block began to be held, by ``_clock``; 0 if it is not held."""
        self._released_at = np.zeros(num_blocks, np.int64)
        """When the last reference to each block was released, by ``_clock``."""
        self._clock = 0
        # In descending order, so that the lowest is taken first: consecutive blocks need no gather.
        self._free = list(reversed(range(num_blocks)))
        self._oldest: list[tuple[int, int]] = []
        """Cached blocks, each with the time of its release, the least recently used last. Those
        that have been used since are skipped: they are not among the oldest any more."""
        # Views of these arrays, which are read and written one by one in half the time.
        self._references_of = self._references.data
        self._held_since_of = self._held_since.data
        self._released_at_of = self._released_at.data

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        return len(self._free)

    @property
    def num_shared(self) -> int:
        """Blocks that have more than one reference."""
        return int(np.count_nonzero(self._references > 1))

    def is_used(self, block: int) -> bool:
        """Return whether there are references to ``block``."""
        return self._references_of[block] > 0

    def held_since(self, block: int) -> int:
        """Return a number for the time since which ``block`` has been held; 0 if it is not."""
        return self._held_since_of[block]

    def num_unused(self, blocks: Blocks) -> int:
        """Count those of ``blocks`` without references."""
        if len(blocks) < _FEW:
            return [self._references_of[block] for block in blocks.tolist()].count(0)
        return len(blocks) - int(np.count_nonzero(self._references[blocks]))

    def refer(self, blocks: Blocks) -> None:
        """Add a reference to each of ``blocks``, which are held or referred to."""
        if len(blocks) < _FEW:
            for block in blocks.tolist():
                self.refer_to_one(block)
        else:
            self.num_cached -= self.num_unused(blocks)
            self._references[blocks] += 1

    def refer_to_one(self, block: int) -> None:
        """Add a reference to ``block``, which is held or referred to."""
        references = self._references_of[block]
        if not references:
            self.num_cached -= 1
        self._references_of[block] = references + 1

    def release(self, blocks: Blocks) -> None:
        """Remove a reference from each of ``blocks``. The last of them is evicted first."""
        if len(blocks) < _FEW:
            for block in reversed(blocks.tolist()):
                self.release_one(block)
            return
        self._references[blocks] -= 1
        unused = blocks[self._references[blocks] == 0][::-1]
        held = self._held_since[unused] > 0
        cached = unused[held]
        self._released_at[cached] = np.arange(self._clock + 1, self._clock + 1 + len(cached))
        self._clock += len(cached)
        self.num_cached += len(cached)
        self._free += unused[~held].tolist()

    def release_one(self, block: int) -> None:
        """Remove a reference from ``block``."""
        references = self._references_of[block] - 1
        self._references_of[block] = references
        if references:
            return
        if self._held_since_of[block]:
            self._clock += 1
            self._released_at_of[block] = self._clock
            self.num_cached += 1
        else:
            self._free.append(block)

    def hold(self, block: int) -> None:
        """Hold the contents of a block that is referred to."""
        if not self._held_since_of[block]:
            self._clock += 1
            self._held_since_of[block] = self._clock

    def drop(self, block: int) -> None:
        """Hold the contents of ``block`` no longer: it is free unless it is referred to."""
        if self._held_since_of[block] and not self._references_of[block]:
            self.num_cached -= 1
            self._free.append(block)
        self._held_since_of[block] = 0

    def take(self) -> tuple[int, bool]:
        """Return a block with one reference, and whether it was evicted: if no block is free, it is
        the least recently used one that is cached."""
        evicted = not self._free
        if evicted:
            self.drop(self._least_recent())
        block = self._free.pop()
        self._references_of[block] = 1
        return block, evicted

    def _least_recent(self) -> int:
        while True:
            if not self._oldest:
                self._look_for_oldest()
            block, released_at = self._oldest.pop()
            is_cached = self._held_since_of[block] and not self._references_of[block]
            if is_cached and self._released_at_of[block] == released_at:
                return block

    def _look_for_oldest(self) -> None:
        cached = np.flatnonzero((self._references == 0) & (self._held_since > 0))
        if len(cached) > _LOOK_AHEAD:
            oldest = np.argpartition(self._released_at[cached], _LOOK_AHEAD)[:_LOOK_AHEAD]
            cached = cached[oldest]
        latest_first = cached[np.argsort(-self._released_at[cached])]
        times = self._released_at[latest_first].tolist()
        self._oldest = list(zip(latest_first.tolist(), times, strict=True))
