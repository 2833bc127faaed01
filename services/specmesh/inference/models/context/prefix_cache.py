"""A cache of the states of recent prefixes, found by chained digest, evicted least recently used.

Entries are immutable snapshots. A continuation starts from views of an entry and later puts its own
snapshot. So forking and rolling back copy nothing, and sessions with a common prefix never disturb
each other.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import eq
from typing import Generic, TypeVar

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain

State = TypeVar("State")

SUPERSEDED_WITHIN_TOKENS = 64
"""A snapshot replaces the one it grew from if it dropped at most this many tokens of it."""


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[State]):
    """The ``state`` computed for exactly the tokens of ``chain``.

    A snapshot that replaces another inherits its ``line``, by which its blocks are indexed: there
    may be thousands, of which few are new.
    """

    chain: PrefixChain
    state: State
    line: int


class PrefixCache(Generic[State]):
    """Snapshots, indexed by the digests of their blocks.

    Invariant: they hold at most ``max_tokens`` tokens, unless there is only one snapshot. One
    thread puts and uses them; any thread may call ``find_base``.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._entries: OrderedDict[int, Snapshot[State]] = OrderedDict()
        self._lines = LineIndex()
        self._keys: dict[int, int] = {}
        """The key of each line's snapshot."""
        self._next_key = 0
        self._lock = threading.Lock()

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """Return the first ``base_length`` tokens of a snapshot, as a new chain, if they have that
        digest."""
        with self._lock:
            chain = self._lines.chain_with(digest)
        if chain is None or len(chain) < base_length or chain.digest_at(base_length) != digest:
            return None
        base = PrefixChain(chain)
        base.truncate(base_length)
        return base

    def longest(self, chain: PrefixChain) -> tuple[int | None, int]:
        """Find a snapshot that shares the longest prefix with ``chain``.

        Returns its key and the number of shared tokens, on ties a snapshot without further tokens
        if there is one; (None, 0) if no snapshot shares the first token.
        """
        line, shared = self._lines.longest(chain)
        return (None, 0) if line is None else (self._keys[line], shared)

    def use(self, key: int) -> Snapshot[State]:
        """Return the snapshot under ``key``, marked as recently used."""
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, chain: PrefixChain, state: State, grown_from: int | None, shared: int) -> None:
        """Add a snapshot; its first ``shared`` tokens are those of the entry ``grown_from``.

        It replaces that entry, unless the entry has more than ``SUPERSEDED_WITHIN_TOKENS`` other
        tokens.
        """
        key = line = self._next_key
        self._next_key += 1
        with self._lock:
            origin = self._entries.get(grown_from) if grown_from is not None else None
            if origin is not None and len(origin.chain) - shared <= SUPERSEDED_WITHIN_TOKENS:
                assert grown_from is not None
                line = origin.line
                self._remove(grown_from, shared // BLOCK_TOKENS)
            self._lines.add(line, chain)
            self._entries[key] = Snapshot(chain, state, line)
            self._keys[line] = key
            self._num_tokens += len(chain)
            while self._num_tokens > self._max_tokens and len(self._entries) > 1:
                oldest = next(iter(self._entries))
                del self._keys[self._entries[oldest].line]
                self._remove(oldest, 0)

    def _remove(self, key: int, num_indexed: int) -> None:
        """Remove a snapshot; its first ``num_indexed`` blocks stay indexed."""
        snapshot = self._entries.pop(key)
        self._num_tokens -= len(snapshot.chain)
        self._lines.remove(snapshot.line, num_indexed)


class LineIndex:
    """The chains of lines, found by what they begin with.

    Below every prefix of full blocks stand the lines that go on from it, sorted by their next
    block, so the one that shares the most tokens is next to the place where bisection would insert
    them. One line stands for all that have the same full block next; each line stands for itself
    where it ends. So a line is found, added and removed without a look at most of the others.
    """

    def __init__(self) -> None:
        self._chains: dict[int, PrefixChain] = {}
        self._below: dict[bytes, list[int]] = {}
        """Lines by the digest of the prefix from which they go on, or its salt."""

    def chain_with(self, digest: bytes) -> PrefixChain | None:
        """Return a chain with that ``digest``, or None."""
        lines = self._below.get(digest)
        return self._chains[lines[0]] if lines else None

    def longest(self, chain: PrefixChain) -> tuple[int | None, int]:
        """Return a line that shares the longest prefix with ``chain``, and the number of shared
        tokens; on ties one that ends there, if there is one."""
        start = self._num_held(chain) * BLOCK_TOKENS
        lines = self._below.get(chain.digest_at(start), [])
        wanted, order = chain[start : start + BLOCK_TOKENS], self._order(start)
        at = bisect_left(lines, (wanted, -1), key=order)
        beside = (order(line)[0] for line in lines[max(0, at - 1) : at + 1])
        shared = max((_num_shared(tokens, wanted) for tokens in beside), default=0)
        if not start + shared:
            return None, 0
        return lines[bisect_left(lines, (wanted[:shared], -1), key=order)], start + shared

    def add(self, line: int, chain: PrefixChain) -> None:
        """Add a line, or its new chain after those of its blocks that stayed."""
        self._chains[line] = chain
        for index in range(self._num_held(chain), len(chain) // BLOCK_TOKENS + 1):
            start = index * BLOCK_TOKENS
            insort(self._below.setdefault(chain.digest_at(start), []), line, key=self._order(start))

    def remove(self, line: int, num_kept: int) -> None:
        """Remove a line but for its first ``num_kept`` blocks; if there are any, the line must be
        added again with a chain that begins with them."""
        chain = self._chains[line]
        for index in reversed(range(num_kept, len(chain) // BLOCK_TOKENS + 1)):
            start = index * BLOCK_TOKENS
            lines, order = self._below[chain.digest_at(start)], self._order(start)
            at = bisect_left(lines, order(line), key=order)
            ends = index == len(chain.digests)
            heirs = [] if ends else self._below[chain.digests[index]]
            if heirs:
                if lines[at : at + 1] == [line]:  # otherwise another stands for them already
                    lines[at] = heirs[0]
                continue
            del lines[at]
            if not ends:
                del self._below[chain.digests[index]]
        if not num_kept:
            del self._chains[line]
            if not self._below[chain.salt]:
                del self._below[chain.salt]

    def _num_held(self, chain: PrefixChain) -> int:
        """Count the leading blocks of ``chain`` that lines go on from: where one does, lines go on
        from all blocks before it."""
        return bisect_left(chain.digests, True, key=lambda digest: digest not in self._below)

    def _order(self, start: int) -> Callable[[int], tuple[list[int], int]]:
        """Return the order of lines below a prefix of ``start`` tokens."""
        return lambda line: (self._chains[line][start : start + BLOCK_TOKENS], line)


def _num_shared(tokens: Sequence[int], others: Sequence[int]) -> int:
    """Return the number of first tokens that are equal."""
    return sum(1 for _ in takewhile(bool, map(eq, tokens, others)))
