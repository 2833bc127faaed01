"""The use of vLLM's KV cache, reported as that of specmesh's own block pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from specmesh.inference.models.vllm.tails import Tails


class KvUse:
    """A ``KvCounts`` over a vLLM ``BlockPool``; any thread may read it."""

    def __init__(
        self,
        pool: Any,
        block_tokens: int,
        tails: Tails | None,
        blocks_of_idle: Callable[[], Counter[int]],
    ) -> None:
        """Observe ``pool``. ``blocks_of_idle`` returns the number of idle requests that hold each
        block."""
        self._pool = pool
        self._tails = tails
        self._blocks_of_idle = blocks_of_idle
        self.num_looked_up_tokens = 0
        self.num_hit_tokens = 0
        self.num_blocks = int(pool.num_gpu_blocks) - 1
        """The number of usable blocks: vLLM keeps the first one for itself."""
        self.capacity_tokens = self.num_blocks * block_tokens

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        return self.num_blocks - self.num_used - self.num_cached

    @property
    def num_cached(self) -> int:
        """Blocks that no running call uses and whose tokens can be found; they can be evicted."""
        return sum(
            num_users == 0 and (block.ref_cnt > 0 or block.block_hash is not None)
            for block, num_users in self._users()
        )

    @property
    def num_used(self) -> int:
        """Blocks in use by running calls."""
        return sum(num_users > 0 for _, num_users in self._users())

    @property
    def num_shared(self) -> int:
        """Blocks in use by more than one running call."""
        return sum(num_users > 1 for _, num_users in self._users())

    @property
    def num_evicted(self) -> int:
        """Blocks that went to another call while their tokens could still be found."""
        return 0 if self._tails is None else self._tails.num_evicted

    def count(self, num_looked_up: int, num_hit: int) -> None:
        """Count the tokens of a call that begins."""
        self.num_looked_up_tokens += num_looked_up
        self.num_hit_tokens += num_hit

    def _users(self) -> Iterator[tuple[Any, int]]:
        """Yield each block with the number of running calls that use it."""
        idle = self._blocks_of_idle()
        return ((block, block.ref_cnt - idle[block.block_id]) for block in self._pool.blocks[1:])
