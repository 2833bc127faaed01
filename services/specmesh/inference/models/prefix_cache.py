"""A cache of the states of recent prefixes, found by chained digest, evicted least recently used.

Entries are immutable snapshots. A continuation starts from views of an entry and later puts its own
snapshot. So forking and rolling back copy nothing, and sessions with a common prefix never disturb
each other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
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

    Invariant: they hold at most ``max_tokens`` tokens, unless there is only one snapshot.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._entries: OrderedDict[int, Snapshot[State]] = OrderedDict()
        # The lines with a block; tuples, since find_base reads them from another thread.
        self._by_digest: dict[bytes, tuple[int, ...]] = {}
        self._keys: dict[int, int] = {}
        """The key of each line's snapshot."""
        self._next_key = 0

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """Return the first ``base_length`` tokens of a snapshot, as a new chain, if they have that
        digest."""
        for line in self._by_digest.get(digest, ()):
            snapshot = self._entries.get(self._keys.get(line, -1))
            if snapshot is None or len(snapshot.chain) < base_length:
                continue
            if snapshot.chain.digest_at(base_length) == digest:
                base = PrefixChain(snapshot.chain)
                base.truncate(base_length)
                return base
        return None

    def longest(self, chain: PrefixChain) -> tuple[int | None, int]:
        """Find the snapshot that shares the longest prefix with ``chain``.

        Returns its key and the number of shared tokens, the latest snapshot on ties; (None, 0) if
        no snapshot shares the first token.
        """
        length, holders = 0, tuple(self._entries)
        for longer in range(len(chain) // BLOCK_TOKENS * BLOCK_TOKENS, 0, -BLOCK_TOKENS):
            if found := self._by_digest.get(chain.digest_at(longer)):
                length, holders = longer, tuple(self._keys[line] for line in found)
                break
        left = chain[length:]
        shared, key = max(
            (
                (length + _shared(self._entries[key].chain[length:], left), key)
                for key in holders
                if self._entries[key].chain.salt == chain.salt
            ),
            default=(0, None),
        )
        return (key, shared) if shared else (None, 0)

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
        num_indexed = 0
        origin = self._entries.get(grown_from) if grown_from is not None else None
        if origin is not None and len(origin.chain) - shared <= SUPERSEDED_WITHIN_TOKENS:
            line, num_indexed = origin.line, shared // BLOCK_TOKENS
        self._entries[key] = Snapshot(chain, state, line)
        self._keys[line] = key  # Now find_base finds this one, which has the common blocks too.
        if line != key:
            assert grown_from is not None
            self._remove(grown_from, num_indexed)
        self._num_tokens += len(chain)
        for digest in chain.digests[num_indexed:]:
            self._by_digest[digest] = (*self._by_digest.get(digest, ()), line)
        while self._num_tokens > self._max_tokens and len(self._entries) > 1:
            key = next(iter(self._entries))
            del self._keys[self._entries[key].line]
            self._remove(key, 0)

    def _remove(self, key: int, num_indexed: int) -> None:
        """Remove a snapshot; its first ``num_indexed`` blocks stay indexed."""
        snapshot = self._entries.pop(key)
        self._num_tokens -= len(snapshot.chain)
        for digest in snapshot.chain.digests[num_indexed:]:
            others = tuple(other for other in self._by_digest[digest] if other != snapshot.line)
            if others:
                self._by_digest[digest] = others
            else:
                del self._by_digest[digest]


def _shared(tokens: Sequence[int], others: Sequence[int]) -> int:
    """Return the number of first tokens that are equal."""
    shorter = min(len(tokens), len(others))
    if tokens[:shorter] == others[:shorter]:  # as where one continues the other
        return shorter
    return sum(1 for _ in takewhile(bool, map(eq, tokens, others)))
