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
    """The ``state`` computed for exactly the tokens of ``chain``."""

    chain: PrefixChain
    state: State


class PrefixCache(Generic[State]):
    """Snapshots, indexed by the digests of their blocks.

    Invariant: they hold at most ``max_tokens`` tokens, unless there is only one snapshot.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._entries: OrderedDict[int, Snapshot[State]] = OrderedDict()
        # Tuples, the latest key last: find_base reads them from another thread.
        self._by_digest: dict[bytes, tuple[int, ...]] = {}
        self._next_key = 0

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """Return the first ``base_length`` tokens of a snapshot, as a new chain, if they have that
        digest."""
        for key in self._by_digest.get(digest, ()):
            snapshot = self._entries.get(key)
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
                length, holders = longer, found
                break
        shared, key = max(
            (
                (length + _shared(self._entries[key].chain[length:], chain, length), key)
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
        origin = self._entries.get(grown_from) if grown_from is not None else None
        if origin is not None and len(origin.chain) - shared <= SUPERSEDED_WITHIN_TOKENS:
            assert grown_from is not None
            self._drop(grown_from)
        key = self._next_key
        self._next_key += 1
        self._entries[key] = Snapshot(chain, state)
        self._num_tokens += len(chain)
        for length in range(BLOCK_TOKENS, len(chain) + 1, BLOCK_TOKENS):
            digest = chain.digest_at(length)
            self._by_digest[digest] = (*self._by_digest.get(digest, ()), key)
        while self._num_tokens > self._max_tokens and len(self._entries) > 1:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: int) -> None:
        snapshot = self._entries.pop(key)
        self._num_tokens -= len(snapshot.chain)
        for length in range(BLOCK_TOKENS, len(snapshot.chain) + 1, BLOCK_TOKENS):
            digest = snapshot.chain.digest_at(length)
            others = tuple(other for other in self._by_digest[digest] if other != key)
            if others:
                self._by_digest[digest] = others
            else:
                del self._by_digest[digest]


def _shared(tokens: Sequence[int], chain: PrefixChain, start: int) -> int:
    pairs = map(eq, tokens, chain[start:])
    return sum(1 for _ in takewhile(bool, pairs))
