"""Bookkeeping of KV blocks, without tensors: block tables, shared prefixes, copies, eviction.

A block is **used** while a table refers to it, **cached** if no table does but its contents are
registered, and **free** otherwise. These invariants keep sequences from each other's KV:

- A registered full block is never written. A sequence that continues from its middle copies it.
- A registered partial tail is continued in place by one table at a time, from the end of the tokens
  it is registered for; any other table that wants those tokens copies them.
- The source of a copy stays referred to, so that it is not reused before it is copied.
- Cached blocks are evicted least recently used first, and a block always before its parent: a table
  refers to the parents of all its registered blocks, and releases its blocks from the end.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.inference.engine.block_registry import BlockRegistry
from specmesh.inference.engine.recent_chains import RecentChains


class NoRoom(Exception):
    """There are not enough blocks now, since other sequences hold them; a later attempt may
    succeed."""


class TooLarge(Exception):
    """The sequence has more tokens than all blocks together hold: no attempt will succeed."""

    def __init__(self, num_tokens: int, capacity_tokens: int) -> None:
        super().__init__(
            f"prefix and tree need {num_tokens} tokens of KV cache, of which this replica has "
            f"{capacity_tokens}"
        )
        self.num_tokens = num_tokens
        self.capacity_tokens = capacity_tokens


@dataclass(eq=False, slots=True)
class BlockTable:
    """One sequence's blocks: its token i lies in slot ``blocks[i // 16] * 16 + i % 16``.

    The sequence writes its tokens from index ``num_cached`` on, never before.
    """

    blocks: list[int]
    num_cached: int
    """The number of leading tokens whose KV is cached. The prefix's last token never counts: its
    logits are needed, so it goes through a forward pass again."""
    copies: list[tuple[int, int, int]]
    """At most one (source block, destination block, leading tokens), to be copied before the
    sequence's first forward pass."""
    _num_registered: int = field(default=0, init=False, repr=False)
    """The number of leading full blocks that are registered, this table's own or others'."""
    _source: int | None = field(default=None, init=False, repr=False)


class BlockPool:
    """All blocks of a KV store; the module's docstring lists the invariants.

    One thread opens and closes tables; any thread may call ``find_base``.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_evicted = 0
        self.num_looked_up_tokens = 0
        self.num_hit_tokens = 0
        self._lock = threading.Lock()
        self._registry = BlockRegistry()
        self._recent = RecentChains(num_blocks * BLOCK_TOKENS)
        self._num_references = [0] * num_blocks
        # In descending order, so that the lowest is taken first: consecutive blocks need no gather.
        self._free = list(reversed(range(num_blocks)))
        self._cached: OrderedDict[int, None] = OrderedDict()  # the least recently used first

    @property
    def capacity_tokens(self) -> int:
        """The most tokens that one sequence can hold, including its tree."""
        return self.num_blocks * BLOCK_TOKENS

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Blocks that hold registered tokens and can be evicted."""
        return len(self._cached)

    @property
    def num_used(self) -> int:
        """Blocks that open tables refer to."""
        return self.num_blocks - len(self._free) - len(self._cached)

    @property
    def num_shared(self) -> int:
        """Blocks that more than one open table refers to."""
        return sum(number > 1 for number in self._num_references)

    def open(self, chain: PrefixChain, room: int, *, counted: bool = True) -> BlockTable:
        """Return a table with blocks for the tokens of ``chain`` (at least one) and ``room`` more.

        Its tokens, and those that were cached, are ``counted`` unless they were for another table
        just before. Raises ``NoRoom`` or ``TooLarge``, in which case nothing changes.
        """
        num_tokens = len(chain) + room
        if num_tokens > self.capacity_tokens:
            raise TooLarge(num_tokens, self.capacity_tokens)
        num_blocks = -(-num_tokens // BLOCK_TOKENS)
        with self._lock:
            table = self._open(chain, num_blocks)
        if counted:
            self.num_looked_up_tokens += len(chain)
            self.num_hit_tokens += table.num_cached
        return table

    def publish(self, table: BlockTable, chain: PrefixChain) -> None:
        """Share the contents of ``table``, which stays open, with tables opened from now on.

        The KV of all tokens of ``chain`` must have been computed, and must not be written again.
        """
        with self._lock:
            self._release_source(table)
            self._register(table, chain, swap=False)

    def close(self, table: BlockTable, chain: PrefixChain | None) -> None:
        """Close ``table``; the KV of the tokens of ``chain`` stays cached.

        That KV must have been computed, from the table's first slot on. ``chain`` is shorter than
        the prefix if the prefill was interrupted, and longer if nodes of the tree were accepted.
        Without ``chain`` only what was cached or published before stays.
        """
        with self._lock:
            self._release_source(table)
            if chain is not None:
                self._register(table, chain, swap=True)
                self._recent.add(chain)
            for block in reversed(table.blocks):
                self._release(block)
            table.blocks = []

    def find_base(self, length: int, digest: bytes) -> PrefixChain | None:
        """Return the prefix of ``length`` tokens with that ``digest``, if the pool holds every
        block of it, else None."""
        with self._lock:
            if length and not self._registry.holds(digest):
                return None
            # A block is registered only as long as its parents are. To copy them from a chain
            # takes a tenth of the time for long prefixes, in which all other calls wait.
            return self._recent.find(length, digest) or self._registry.base(length, digest)

    def _open(self, chain: PrefixChain, num_blocks: int) -> BlockTable:
        blocks = self._registry.leading(chain, len(chain) - 1)
        num_idle = sum(not self._num_references[block] for block in blocks)
        num_available = len(self._free) + len(self._cached) - num_idle
        num_left = num_available - (num_blocks - len(blocks))
        if num_left < 0:
            raise NoRoom(f"{self.num_used} of {self.num_blocks} blocks of KV cache are in use")
        self._refer(blocks)
        table = BlockTable(blocks, num_cached=len(blocks) * BLOCK_TOKENS, copies=[])
        table._num_registered = len(blocks)
        self._begin_mid_block(table, chain, may_keep_source=num_left > 0)
        blocks += [self._take() for _ in range(num_blocks - len(blocks))]
        return table

    def _begin_mid_block(
        self, table: BlockTable, chain: PrefixChain, *, may_keep_source: bool
    ) -> None:
        """Take over, or copy, a block that continues ``chain`` after the table's full blocks."""
        start = table.num_cached
        wanted = chain[start : min(start + BLOCK_TOKENS, len(chain) - 1)]
        begun = self._registry.longest_beginning(chain.digest_at(start), wanted)
        if begun is None:
            return
        block, num_shared = begun
        idle = not self._num_references[block]
        if idle and self._registry.is_tail(block):
            self._registry.shorten(block, num_shared)
            self._refer([block])
            table.blocks.append(block)
        elif may_keep_source or not idle:
            self._refer([block])
            table._source = block
            table.blocks.append(self._take())
            table.copies.append((block, table.blocks[-1], num_shared))
        else:
            return  # the table needs every block, including the one it would copy from
        table.num_cached += num_shared

    def _register(self, table: BlockTable, chain: PrefixChain, *, swap: bool) -> None:
        """Register the blocks of ``table`` that hold tokens of ``chain``.

        Where another table has registered the same tokens first, use its block instead (``swap``)
        or stop: later blocks would outlive their parents, which this table doesn't refer to.
        """
        for index in range(table._num_registered, -(-len(chain) // BLOCK_TOKENS)):
            block = table.blocks[index]
            holder = self._registry.add(block, chain, index)
            if holder == block:
                self._free_tails_within(block)
            elif swap:
                self._refer([holder])
                self._release(block)
                table.blocks[index] = holder
            else:
                return
            table._num_registered = min(index + 1, len(chain) // BLOCK_TOKENS)

    def _free_tails_within(self, block: int) -> None:
        while (tail := self._registry.tail_within(block)) is not None:
            if self._num_references[tail]:
                return
            self._registry.discard(tail)
            del self._cached[tail]
            self._free.append(tail)

    def _take(self) -> int:
        """Take a block for one table alone; evict the least recently used one if none is free."""
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._cached.popitem(last=False)
            self._registry.discard(block)
            self.num_evicted += 1
        self._num_references[block] = 1
        return block

    def _refer(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if not self._num_references[block]:
                del self._cached[block]
            self._num_references[block] += 1

    def _release(self, block: int) -> None:
        self._num_references[block] -= 1
        if self._num_references[block]:
            return
        if block in self._registry:
            self._cached[block] = None
        else:
            self._free.append(block)

    def _release_source(self, table: BlockTable) -> None:
        if table._source is not None:
            self._release(table._source)
            table._source = None
