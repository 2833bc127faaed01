"""What vLLM's KV cache holds, in the words of our own block pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from specmesh.inference.models.vllm.tails import Tails


class KvUse:
    """A ``KvCounts`` over a ``BlockPool`` of vLLM's; any thread may read it."""

    def __init__(
        self,
        pool: Any,
        block_tokens: int,
        tails: Tails | None,
        blocks_of_idle: Callable[[], Counter[int]],
    ) -> None:
        """``blocks_of_idle`` says how many requests of no call have a block."""
        self._pool = pool
        self._tails = tails
        self._blocks_of_idle = blocks_of_idle
        self.num_looked_up_tokens = 0
        self.num_hit_tokens = 0
        self.num_blocks = int(pool.num_gpu_blocks) - 1
        """vLLM uses the first one for itself."""
        self.capacity_tokens = self.num_blocks * block_tokens

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        return self.num_blocks - self.num_used - self.num_cached

    @property
    def num_cached(self) -> int:
        """Blocks that hold what can be found, and evicted."""
        return sum(
            num_users == 0 and (block.ref_cnt > 0 or block.block_hash is not None)
            for block, num_users in self._users()
        )

    @property
    def num_used(self) -> int:
        """Blocks of calls under way."""
        return sum(num_users > 0 for _, num_users in self._users())

    @property
    def num_shared(self) -> int:
        """Blocks of more than one call under way."""
        return sum(num_users > 1 for _, num_users in self._users())

    @property
    def num_evicted(self) -> int:
        """How many have been given to another call while something could be found in them."""
        return 0 if self._tails is None else self._tails.num_evicted

    def count(self, num_looked_up: int, num_hit: int) -> None:
        """Account for a call that begins."""
        self.num_looked_up_tokens += num_looked_up
        self.num_hit_tokens += num_hit

    def _users(self) -> Iterator[tuple[Any, int]]:
        """Blocks, and of how many calls under way each is."""
        idle = self._blocks_of_idle()
        return ((block, block.ref_cnt - idle[block.block_id]) for block in self._pool.blocks[1:])
