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
from dataclasses import dataclass, field

import numpy as np

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.inference.engine.blocks.recent_chains import RecentChains
from specmesh.inference.engine.blocks.recent_tables import MIN_BLOCKS, RecentTables
from specmesh.inference.engine.blocks.registry import BlockRegistry
from specmesh.inference.engine.blocks.rereads import RereadLater, Rereads
from specmesh.inference.engine.blocks.usage import Blocks, BlockUsage


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

    blocks: Blocks
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
        self.rereads: Rereads | None = None
        """The pace at which evicted prefixes are computed again; None if nobody can wait."""
        self._lock = threading.Lock()
        self._registry = BlockRegistry()
        self._usage = BlockUsage(num_blocks)
        self._recent = RecentChains(num_blocks * BLOCK_TOKENS)
        self._tables = RecentTables()

    @property
    def capacity_tokens(self) -> int:
        """The most tokens that one sequence can hold, including its tree."""
        return self.num_blocks * BLOCK_TOKENS

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        return self._usage.num_free

    @property
    def num_cached(self) -> int:
        """Blocks that hold registered tokens and can be evicted."""
        return self._usage.num_cached

    @property
    def num_used(self) -> int:
        """Blocks that open tables refer to."""
        return self.num_blocks - self.num_free - self.num_cached

    @property
    def num_shared(self) -> int:
        """Blocks that more than one open table refers to."""
        return self._usage.num_shared

    def open(self, chain: PrefixChain, room: int, *, counted: bool = True) -> BlockTable:
        """Return a table with blocks for the tokens of ``chain`` (at least one) and ``room`` more.

        Its tokens, and those that were cached, are ``counted`` unless they were for another table
        just before. Raises ``NoRoom``, ``TooLarge`` or ``RereadLater``, in which case nothing
        changes.
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

    def num_missing(self, chain: PrefixChain) -> int:
        """Return the number of tokens of ``chain`` whose full blocks are not cached."""
        with self._lock:
            leading = self._leading(chain, (len(chain) - 1) // BLOCK_TOKENS)
        return len(chain) - len(leading) * BLOCK_TOKENS

    def publish(self, table: BlockTable, chain: PrefixChain) -> None:
        """Share the contents of ``table``, which stays open, with tables opened from now on, if any
        of its full blocks are not shared yet.

        The KV of all tokens of ``chain`` must have been computed, and must not be written again.
        """
        with self._lock:
            self._release_source(table)
            if table._num_registered < len(chain.digests):
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
                self._remember(table, chain)
            self._usage.release(table.blocks)
            table.blocks = table.blocks[:0]

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
        leading = self._leading(chain, (len(chain) - 1) // BLOCK_TOKENS)
        num_idle = self._usage.num_unused(leading)
        num_available = self.num_free + self.num_cached - num_idle
        num_left = num_available - (num_blocks - len(leading))
        if num_left < 0:
            raise NoRoom(f"{self.num_used} of {self.num_blocks} blocks of KV cache are in use")
        self._keep_pace(chain, len(leading), num_blocks)
        self._usage.refer(leading)
        table = BlockTable(leading, num_cached=len(leading) * BLOCK_TOKENS, copies=[])
        table._num_registered = len(leading)
        begun = self._begin_mid_block(table, chain, may_keep_source=num_left > 0)
        others = [self._take() for _ in range(num_blocks - len(leading) - len(begun))]
        table.blocks = np.concatenate([leading, np.array([*begun, *others], np.int64)])
        return table

    def _keep_pace(self, chain: PrefixChain, num_leading: int, num_blocks: int) -> None:
        """Raise ``RereadLater`` if ``chain``, of which ``num_leading`` blocks are cached, was
        evicted a moment ago and would evict other blocks too early."""
        if self.rereads is None:
            return
        num_missing = (len(chain) - 1) // BLOCK_TOKENS - num_leading
        is_reread = num_missing > 1 and self.rereads.is_reread(chain.digests[num_leading])
        evicts = num_blocks - num_leading > self.num_free
        num_reread = num_missing * BLOCK_TOKENS if is_reread and evicts else 0
        if num_reread and self.rereads.puts_off(num_reread):
            raise RereadLater
        self.rereads.began(num_reread)

    def _leading(self, chain: PrefixChain, num_blocks: int) -> Blocks:
        """Return the blocks registered for the first ``num_blocks`` blocks of ``chain``, up to the
        first gap."""
        known, held_since = self._tables.find(chain, num_blocks)
        # A block outlives none of its parents: if the last one was never dropped, none of them was.
        if len(known) and self._usage.held_since(int(known[-1])) != held_since:
            known = known[:0]
        start, end = len(known) * BLOCK_TOKENS, num_blocks * BLOCK_TOKENS
        further = np.array(self._registry.leading(chain, start, end), np.int64)
        return np.concatenate([known, further]) if len(known) else further

    def _remember(self, table: BlockTable, chain: PrefixChain) -> None:
        self._recent.add(chain)
        num_full = table._num_registered
        if num_full >= MIN_BLOCKS and num_full == len(chain.digests):
            last = int(table.blocks[num_full - 1])
            held_since = self._usage.held_since(last)
            self._tables.add(chain.digests[-1], table.blocks[:num_full].copy(), held_since)

    def _begin_mid_block(
        self, table: BlockTable, chain: PrefixChain, *, may_keep_source: bool
    ) -> list[int]:
        """Take over, or copy, a block that continues ``chain`` after the table's full blocks;
        return it, if there is one."""
        start = table.num_cached
        wanted = chain[start : min(start + BLOCK_TOKENS, len(chain) - 1)]
        begun = self._registry.longest_beginning(chain.digest_at(start), wanted)
        if begun is None:
            return []
        block, num_shared = begun
        idle = not self._usage.is_used(block)
        if idle and self._registry.is_tail(block):
            self._registry.shorten(block, num_shared)
            self._usage.refer_to_one(block)
            begins = block
        elif may_keep_source or not idle:
            self._usage.refer_to_one(block)
            table._source = block
            begins = self._take()
            table.copies.append((block, begins, num_shared))
        else:
            return []  # the table needs every block, including the one it would copy from
        table.num_cached += num_shared
        return [begins]

    def _register(self, table: BlockTable, chain: PrefixChain, *, swap: bool) -> None:
        """Register the blocks of ``table`` that hold tokens of ``chain``.

        Where another table has registered the same tokens first, use its block instead (``swap``)
        or stop: later blocks would outlive their parents, which this table doesn't refer to.
        """
        for index in range(table._num_registered, -(-len(chain) // BLOCK_TOKENS)):
            block = int(table.blocks[index])
            holder = self._registry.add(block, chain, index)
            if holder == block:
                self._usage.hold(block)
                self._free_tails_within(block)
            else:
                self._usage.drop(block)
                if not swap:
                    return
                self._usage.refer_to_one(holder)
                self._usage.release_one(block)
                table.blocks[index] = holder
            table._num_registered = min(index + 1, len(chain) // BLOCK_TOKENS)

    def _free_tails_within(self, block: int) -> None:
        while (tail := self._registry.tail_within(block)) is not None:
            if self._usage.is_used(tail):
                return
            self._registry.discard(tail)
            self._usage.drop(tail)

    def _take(self) -> int:
        """Take a block for one table alone; evict the least recently used one if none is free."""
        block, evicted = self._usage.take()
        if evicted:
            digest = self._registry.digest(block)
            if digest is not None and self.rereads is not None:
                self.rereads.evicted(digest)
            self._registry.discard(block)
            self.num_evicted += 1
        return block

    def _release_source(self, table: BlockTable) -> None:
        if table._source is not None:
            self._usage.release_one(table._source)
            table._source = None
