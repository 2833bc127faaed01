"""Prefixes that a model has seen, by their digests, in blocks that prefixes share."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain, is_salt
from specmesh.inference.engine.blocks.recent_chains import RecentChains


@dataclass(frozen=True, slots=True)
class _Block:
    tokens: tuple[int, ...]
    parent: bytes
    """The digest of all tokens before the block; for the first block, the salt."""


class SeenPrefixes:
    """An index of prefixes of full blocks by digest; it forgets the least recently added first.

    One thread adds prefixes; any thread may find them.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_blocks = max_tokens // BLOCK_TOKENS
        self._lock = threading.Lock()
        self._recent = RecentChains(max_tokens)
        self._blocks: OrderedDict[bytes, _Block] = OrderedDict()

    def add(self, chain: PrefixChain) -> None:
        """Remember the full blocks of ``chain``. If the last one is new, all of them count as
        recently added."""
        with self._lock:
            self._recent.add(chain)
            if chain.digests and chain.digests[-1] in self._blocks:
                return  # and so are those before it
            # The last first, so that a block is forgotten before its parent, which it needs.
            for index in reversed(range(len(chain.digests))):
                digest = chain.digests[index]
                if digest not in self._blocks:
                    start = index * BLOCK_TOKENS
                    tokens = tuple(chain[start : start + BLOCK_TOKENS])
                    self._blocks[digest] = _Block(tokens, chain.digest_at(start))
                self._blocks.move_to_end(digest)
            while len(self._blocks) > self._max_blocks:
                self._blocks.popitem(last=False)

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """Return the prefix of ``base_length`` tokens with that ``digest``, if all of it is known,
        as a new chain; else None."""
        found: list[tuple[tuple[int, ...], bytes]] = []
        with self._lock:
            # Copying it takes a tenth of the time for long prefixes.
            if (recent := self._recent.find(base_length, digest)) is not None:
                return recent
            while (block := self._blocks.get(digest)) is not None:
                found.append((block.tokens, digest))
                digest = block.parent
        # The salt comes before the first block; a digest there means that a block is missing.
        if not is_salt(digest) or len(found) * BLOCK_TOKENS != base_length:
            return None
        return PrefixChain.of_blocks(reversed(found), digest)
