"""Which of vLLM's blocks begin with given tokens, so that a call can go on in the middle of one.

vLLM finds whole blocks by their hashes. Where a prefix ends within a block, the call before it has
most likely computed all of that but for the last few tokens; only, nobody knows where. Here the
blocks of every call that has ended are registered by their tokens, as those of our own engine are.
A tail that nobody else uses is taken over: the call writes on in it. Any other block vLLM copies,
on the workers, before anything is written behind what is shared, as it does with its own hits that
end within a block.

What is registered of a block is never written again until vLLM hands it out anew, and then it is
forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specmesh.decoding.prefix import PrefixChain
from specmesh.inference.engine.block_registry import BlockRegistry

TAIL = b"the tail of a call"
"""In place of a hash: vLLM reuses first what has none, and a hash of another length finds nobody
looking for it."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A block that begins with the ``num_shared`` tokens that a chain has from ``start`` on."""

    block: Any
    start: int
    num_shared: int


class Tails:
    """The blocks that ended calls have left in ``pool``, a ``BlockPool`` of vLLM's."""

    def __init__(self, pool: Any, block_tokens: int) -> None:
        self._pool = pool
        self._block_tokens = block_tokens
        self._registry = BlockRegistry(block_tokens)
        self._get_new_blocks = pool.get_new_blocks
        pool.get_new_blocks = self._hand_out
        self._num_sure: dict[int, int] = {}
        """By tail, how many of its tokens were none of a draft."""
        self.num_evicted = 0
        """Blocks that were handed out anew while something was registered for them."""

    def find(self, chain: PrefixChain, start: int, end: int) -> Beginning | None:
        """The block that begins with the most tokens of ``chain[start:end]``, fewer than all of its
        own. ``start`` is the end of a block."""
        end = min(end, start + self._block_tokens - 1)
        found = self._registry.longest_beginning(chain.digest_at(start), chain[start:end])
        if found is None:
            return None
        number, num_shared = found
        return Beginning(self._pool.blocks[number], start, num_shared)

    def take_over(self, source: Beginning, chain: PrefixChain) -> bool:
        """Have the one call that uses the block of ``source`` write there what follows in
        ``chain``. False if others use it too, or if another session goes on from it."""
        number = source.block.block_id
        if source.block.ref_cnt > 1 or not self._is_replaced(source, chain):
            return False
        wanted = self._from(source, chain)
        num_shared = self._registry.num_shared(number, wanted)
        if num_shared < len(wanted):  # else nothing in it becomes something else
            self._registry.shorten(number, num_shared)
        self._pool.evict_blocks({number})
        return True

    def write_over(self, blocks: Sequence[Any], num_kept: int, num_shared: int) -> Beginning | None:
        """Have the call that alone uses ``blocks``, as of the one that holds token ``num_kept``,
        write there from that token on. Its first ``num_shared`` tokens are what was there.

        Returns the block in whose middle it does, if any.
        """
        first, num_within = divmod(num_shared, self._block_tokens)
        if num_within and blocks[first].block_id in self._registry:
            self._registry.shorten(blocks[first].block_id, num_within)
            first += 1
        for block in blocks[first:]:
            self._registry.discard(block.block_id)
        first, num_within = divmod(num_kept, self._block_tokens)
        hashed = {block.block_id for block in blocks[first:] if block.block_hash is not None}
        if hashed:
            self._pool.evict_blocks(hashed)
        if not num_within:
            return None
        return Beginning(blocks[first], first * self._block_tokens, num_within)

    def keep(
        self, blocks: Sequence[Any], chain: PrefixChain, num_sure: int, source: Beginning | None
    ) -> None:
        """Register ``blocks``, which hold the KV of ``chain`` and are about to be freed. After its
        first ``num_sure`` tokens it is a draft.

        ``source`` is what the call went on from. If it was copied, and is the tail of a call whose
        session is the same, this one takes its place: else each call would leave a tail that nobody
        wants any more, at the cost of blocks that somebody does.
        """
        taken_over = None if source is None else source.block
        holders = set()
        for index in reversed(range(-(-len(chain) // self._block_tokens))):
            block = blocks[index]
            if block.block_id in self._registry and block is not taken_over:
                break  # and so are those before it
            holder = self._registry.add(block.block_id, chain, index)
            holders.add(holder)
            if holder != block.block_id:
                continue
            self._num_sure[holder] = num_sure - index * self._block_tokens
            if block.block_hash is None:
                block.set_block_hash(TAIL)
            within = self._registry.tail_within(block.block_id)
            if within is not None:
                self._drop(within)
        if source is None or source.block.block_id in holders:
            return
        if self._is_replaced(source, chain):
            self._drop(source.block.block_id)

    def _is_replaced(self, source: Beginning, chain: PrefixChain) -> bool:
        """Whether it is a tail that ``chain`` has but for a draft, which was most likely rejected;
        it may be that of another session, whose draft was not: that costs it a few tokens, once."""
        number = source.block.block_id
        if not self._registry.is_tail(number):
            return False
        wanted = self._from(source, chain)
        num_sure = min(self._num_sure[number], len(wanted))
        return self._registry.num_shared(number, wanted) >= num_sure

    def _from(self, source: Beginning, chain: PrefixChain) -> Sequence[int]:
        """What ``chain`` has from the beginning of that block on, as far as the block goes."""
        return chain[source.start : source.start + self._block_tokens]

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
