"""What vLLM's KV cache holds, in the words of our own block pool."""

from __future__ import annotations

from typing import Any

from specmesh.inference.models.vllm.tails import Tails


class KvUse:
    """A ``KvCounts`` over a ``BlockPool`` of vLLM's; any thread may read it."""

    def __init__(self, pool: Any, block_tokens: int, tails: Tails | None) -> None:
        self._pool = pool
        self._tails = tails
        self.num_looked_up_tokens = 0
        self.num_hit_tokens = 0
        self.num_blocks = int(pool.num_gpu_blocks) - 1
        """vLLM uses the first one for itself."""
        self.capacity_tokens = self.num_blocks * block_tokens

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        return self._num_unused - self.num_cached

    @property
    def num_cached(self) -> int:
        """Blocks that hold what can be found, and evicted."""
        blocks = self._pool.blocks
        return sum(block.block_hash is not None and not block.ref_cnt for block in blocks)

    @property
    def num_used(self) -> int:
        """Blocks of calls under way."""
        return self.num_blocks - self._num_unused

    @property
    def num_shared(self) -> int:
        """Blocks of more than one call under way."""
        return sum(block.ref_cnt > 1 for block in self._pool.blocks)

    @property
    def num_evicted(self) -> int:
        """How many have been given to another call while something could be found in them."""
        return 0 if self._tails is None else self._tails.num_evicted

    def count(self, num_looked_up: int, num_hit: int) -> None:
        """Account for a call that begins."""
        self.num_looked_up_tokens += num_looked_up
        self.num_hit_tokens += num_hit

    @property
    def _num_unused(self) -> int:
        return int(self._pool.get_num_free_blocks())
