"""An index of what KV blocks hold: full blocks by chained digest, partial tails by their tokens.

Every registered block is a child of its parent, the digest of all tokens before it. The children of
one parent are sorted by their tokens, so the child that shares the longest prefix with given tokens
is next to the place where bisection would insert them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain, is_salt

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A block's contents from its first slot on: ``tokens``, which follow the prefix with digest
    ``parent``."""

    parent: bytes
    tokens: Tokens
    digest: bytes | None
    """None for a partial tail, which has fewer tokens than a block."""


class BlockRegistry:
    """Entries by block and by digest; ``add`` never registers the same tokens twice below one
    parent.

    A full block has ``block_tokens`` tokens, a multiple of ``BLOCK_TOKENS``.
    """

    def __init__(self, block_tokens: int = BLOCK_TOKENS) -> None:
        self._block_tokens = block_tokens
        self._entries: dict[int, Entry] = {}
        self._by_digest: dict[bytes, int] = {}
        self._children: dict[bytes, list[tuple[Tokens, int]]] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._entries

    def is_tail(self, block: int) -> bool:
        """Return whether ``block`` is a registered partial tail."""
        entry = self._entries.get(block)
        return entry is not None and entry.digest is None

    def leading(self, chain: PrefixChain, start: int, end: int) -> list[int]:
        """Return the blocks registered for the full blocks of ``chain[:end]`` from ``start`` on, up
        to the first gap."""
        blocks = []
        step = self._block_tokens // BLOCK_TOKENS
        for digest in chain.digests[start // BLOCK_TOKENS + step - 1 : end // BLOCK_TOKENS : step]:
            block = self._by_digest.get(digest)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def longest_beginning(self, parent: bytes, wanted: Sequence[int]) -> tuple[int, int] | None:
        """Return the child of ``parent`` that shares the longest prefix with ``wanted``.

        The child comes with the number of shared tokens. Returns None if no child shares the first
        token.
        """
        children = self._children.get(parent, [])
        at = bisect_left(children, (tuple(wanted),))
        shared = [
            (_num_shared(tokens, wanted), block)
            for tokens, block in children[max(0, at - 1) : at + 1]
        ]
        num_shared, block = max(shared, default=(0, 0))
        return (block, num_shared) if num_shared else None

    def num_shared(self, block: int, wanted: Sequence[int]) -> int:
        """Count the leading tokens of ``wanted`` that are also those of ``block``."""
        return _num_shared(self._entries[block].tokens, wanted)

    def holds(self, digest: bytes) -> bool:
        """Return whether a full block is registered for the tokens up to ``digest``."""
        return digest in self._by_digest

    def base(self, length: int, digest: bytes) -> PrefixChain | None:
        """Return the prefix of ``length`` tokens with that ``digest``, if all its blocks are
        registered."""
        blocks: list[tuple[Tokens, bytes]] = []
        while (block := self._by_digest.get(digest)) is not None:
            entry = self._entries[block]
            blocks.append((entry.tokens, digest))
            digest = entry.parent
        # The salt comes before the first block; a digest there means that a block is missing.
        if not is_salt(digest) or len(blocks) * self._block_tokens != length:
            return None
        return PrefixChain.of_blocks(reversed(blocks), digest)

    def add(self, block: int, chain: PrefixChain, index: int) -> int:
        """Register ``block`` for the tokens of ``chain`` in its block ``index``, full or not.

        Returns the block that is registered for them. If another block already holds these tokens,
        or these and more, that block is returned and ``block`` is not registered.
        """
        start, end = index * self._block_tokens, (index + 1) * self._block_tokens
        tokens = tuple(chain[start:end])
        parent = chain.digest_at(start)
        children = self._children.get(parent, [])
        at = bisect_left(children, (tokens,))
        if at < len(children) and children[at][0][: len(tokens)] == tokens:
            holder = children[at][1]
            if holder != block:
                self.discard(block)
            return holder
        self.discard(block)
        digest = chain.digest_at(end) if len(tokens) == self._block_tokens else None
        self._put(block, Entry(parent, tokens, digest))
        return block

    def shorten(self, tail: int, num_tokens: int) -> None:
        """Forget what ``tail`` holds beyond its first ``num_tokens`` tokens."""
        entry = self._entries[tail]
        if num_tokens < len(entry.tokens):
            self.discard(tail)
            self._put(tail, Entry(entry.parent, entry.tokens[:num_tokens], None))

    def tail_within(self, block: int) -> int | None:
        """Return a registered tail whose tokens are the first ones of ``block``; None if there is
        none."""
        entry = self._entries[block]
        children = self._children[entry.parent]
        at = bisect_left(children, (entry.tokens, block)) - 1
        if at < 0 or entry.tokens[: len(children[at][0])] != children[at][0]:
            return None
        return children[at][1]

    def digest(self, block: int) -> bytes | None:
        """Return the digest of ``block``; None if it is not registered, or a partial tail."""
        entry = self._entries.get(block)
        return None if entry is None else entry.digest

    def discard(self, block: int) -> None:
        """Forget what ``block`` holds, if it is registered."""
        entry = self._entries.pop(block, None)
        if entry is None:
            return
        if entry.digest is not None:
            del self._by_digest[entry.digest]
        children = self._children[entry.parent]
        if len(children) == 1:
            del self._children[entry.parent]
        else:
            del children[bisect_left(children, (entry.tokens, block))]

    def _put(self, block: int, entry: Entry) -> None:
        self._entries[block] = entry
        insort(self._children.setdefault(entry.parent, []), (entry.tokens, block))
        if entry.digest is not None:
            self._by_digest[entry.digest] = block


def _num_shared(tokens: Sequence[int], wanted: Sequence[int]) -> int:
    for index, (token, other) in enumerate(zip(tokens, wanted, strict=False)):
        if token != other:
            return index
    return min(len(tokens), len(wanted))
