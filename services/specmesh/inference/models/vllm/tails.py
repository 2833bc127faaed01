"""Which of vLLM's blocks begin with given tokens, so that a call can go on in the middle of one.

vLLM finds whole blocks by their hashes. Where a prefix ends within a block, the call before it has
most likely computed all of that but for the last few tokens; only, nobody knows where. Here the
blocks of every call that has ended are registered by their tokens, as those of our own engine are.
vLLM itself does the rest: a hit that ends within a block has it copied, on the workers, before
anything is written behind it.

A registered block is never written again until vLLM hands it out anew, and then it is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specmesh.decoding.prefix import PrefixChain
from specmesh.inference.engine.block_registry import BlockRegistry

TAIL = b"the tail of a call"
"""In place of a hash: vLLM reuses first what has none, and a hash of another length finds nobody
looking for it."""


class Tails:
    """The blocks that ended calls have left in ``pool``, a ``BlockPool`` of vLLM's."""

    def __init__(self, pool: Any, block_tokens: int) -> None:
        self._pool = pool
        self._block_tokens = block_tokens
        self._registry = BlockRegistry(block_tokens)
        self._get_new_blocks = pool.get_new_blocks
        pool.get_new_blocks = self._hand_out
        self.num_evicted = 0
        """Blocks that were handed out anew while something was registered for them."""

    def find(self, chain: PrefixChain, start: int, end: int) -> tuple[Any, int] | None:
        """The block that begins with the most tokens of ``chain[start:end]``, and how many: fewer
        than all of its own. ``start`` is the end of a block."""
        end = min(end, start + self._block_tokens - 1)
        found = self._registry.longest_beginning(chain.digest_at(start), chain[start:end])
        if found is None:
            return None
        number, num_shared = found
        return self._pool.blocks[number], num_shared

    def keep(self, blocks: Sequence[Any], chain: PrefixChain, source: Any | None) -> None:
        """Register ``blocks``, which hold the KV of ``chain`` and are about to be freed.

        ``source`` is the block that the call went on from. If it was the tail of another call,
        this one takes its place: else each call would leave a tail that nobody wants any more, at
        the cost of blocks that somebody does.
        """
        holders = set()
        for index in reversed(range(-(-len(chain) // self._block_tokens))):
            block = blocks[index]
            if block.block_id in self._registry:
                break  # and so are those before it
            holder = self._registry.add(block.block_id, chain, index)
            holders.add(holder)
            if holder != block.block_id:
                continue
            if block.block_hash is None:
                block.set_block_hash(TAIL)
            within = self._registry.tail_within(block.block_id)
            if within is not None:
                self._drop(within)
        if source is None or source.block_id in holders:
            return
        if self._registry.is_tail(source.block_id):
            self._drop(source.block_id)

    def _drop(self, number: int) -> None:
        """Forget a tail, and have vLLM reuse its block before any other."""
        self._registry.discard(number)
        self._pool.evict_blocks({number})
        block = self._pool.blocks[number]
        if not block.ref_cnt:
            self._pool.touch([block])
            self._pool.free_blocks([block])

    def _hand_out(self, num_blocks: int) -> list[Any]:
        blocks: list[Any] = self._get_new_blocks(num_blocks)
        for block in blocks:
            if block.block_id in self._registry:
                self._registry.discard(block.block_id)
                self.num_evicted += 1
        return blocks
