"""An index of the tokens in vLLM's blocks, so that a call can continue in the middle of one.

vLLM finds only full blocks, by their hashes. If a prefix ends within a block, the call before it
has most likely computed all but the last few of the block's tokens, but vLLM cannot find them. So
the blocks of every ended call are registered here by their tokens, as in specmesh's own engine. A
tail that no other call uses is taken over, and the call continues to write in it. vLLM's workers
copy any other block before anything is written after the shared tokens, as for vLLM's own hits that
end within a block.

Registered slots of a block are never written until vLLM hands the block out again; then their
registration is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from specmesh.decoding.prefix import PrefixChain
from specmesh.inference.engine.blocks.registry import BlockRegistry

TAIL = b"the tail of a call"
"""The hash of a tail. It needs one, since vLLM reuses blocks without a hash first; and no lookup
finds this one, since its length differs from a real hash."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A block that begins with the ``num_shared`` tokens of a chain from ``start`` on."""

    block: Any
    start: int
    num_shared: int


class Tails:
    """The blocks that ended calls have left in ``pool``, a vLLM ``BlockPool``."""

    def __init__(self, pool: Any, block_tokens: int) -> None:
        self._pool = pool
        self._block_tokens = block_tokens
        self._registry = BlockRegistry(block_tokens)
        self._get_new_blocks = pool.get_new_blocks
        pool.get_new_blocks = self._hand_out
        self._num_sure: dict[int, int] = {}
        """The number of each tail's tokens that were not part of a draft."""
        self.num_evicted = 0
        """The number of blocks handed out again while tokens were registered for them."""

    def find(self, chain: PrefixChain, start: int, end: int) -> Beginning | None:
        """Return the block that begins with the most tokens of ``chain[start:end]``, fewer than all
        of its own. ``start`` is the end of a block."""
        end = min(end, start + self._block_tokens - 1)
        found = self._registry.longest_beginning(chain.digest_at(start), chain[start:end])
        if found is None:
            return None
        number, num_shared = found
        return Beginning(self._pool.blocks[number], start, num_shared)

    def take_over(self, source: Beginning, chain: PrefixChain) -> bool:
        """Let the one call that uses the block of ``source`` continue ``chain`` there. Return False
        if other calls use the block too, or if another session continues from it."""
        number = source.block.block_id
        if source.block.ref_cnt > 1 or not self._is_replaced(source, chain):
            return False
        wanted = self._from(source, chain)
        num_shared = self._registry.num_shared(number, wanted)
        if num_shared < len(wanted):  # otherwise no registered token is overwritten
            self._registry.shorten(number, num_shared)
        self._pool.evict_blocks({number})
        return True

    def write_over(self, blocks: Sequence[Any], num_kept: int, num_shared: int) -> Beginning | None:
        """Let a call write from token ``num_kept`` on in ``blocks``, which from that token's block
        on no other call uses. The call's first ``num_shared`` tokens are already there.

        Returns the block in whose middle it begins to write, if any.
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
        """Register ``blocks``, which hold the KV of ``chain`` and are about to be freed. The tokens
        after the first ``num_sure`` are a draft.

        ``source`` is the block from which the call continued. If it was copied, and is the tail of
        a call of the same session, the new tail replaces it: otherwise each call would leave a
        useless tail, at the cost of useful blocks.
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

    def forget(self, numbers: Iterable[int]) -> None:
        """Let no call continue in the blocks ``numbers``."""
        for number in numbers:
            self._registry.discard(number)

    def _is_replaced(self, source: Beginning, chain: PrefixChain) -> bool:
        """Return whether ``source`` is a tail whose tokens before its draft are in ``chain``; the
        draft was then most likely rejected. If it belongs to another session, whose draft was
        accepted, that session has to compute a few tokens again, once."""
        number = source.block.block_id
        if not self._registry.is_tail(number):
            return False
        wanted = self._from(source, chain)
        num_sure = min(self._num_sure[number], len(wanted))
        return self._registry.num_shared(number, wanted) >= num_sure

    def _from(self, source: Beginning, chain: PrefixChain) -> Sequence[int]:
        """Return the tokens of ``chain`` for the block of ``source``."""
        return chain[source.start : source.start + self._block_tokens]

    def _drop(self, number: int) -> None:
        """Forget a tail, and let vLLM reuse its block first."""
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
