"""The blocks of long prefixes that were used last, so that the next call need not look up each."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from specmesh.decoding.prefix import PrefixChain
from specmesh.inference.engine.blocks.usage import Blocks

MAX_TABLES = 256
MIN_BLOCKS = 64
"""The least number of blocks that are remembered: fewer are looked up within 10 microseconds."""
LOOK_BACK = 64
"""The number of last blocks of a prefix at which the end of an earlier one is looked for."""

_NONE: Blocks = np.empty(0, np.int64)


class RecentTables:
    """The blocks of the full blocks of tokens of prefixes, for the latest ``MAX_TABLES``."""

    def __init__(self) -> None:
        self._tables: OrderedDict[bytes, tuple[Blocks, int]] = OrderedDict()
        """By the digest of the last block, the latest last; with a time of its last block."""

    def add(self, digest: bytes, blocks: Blocks, held_since: int) -> None:
        """Remember ``blocks``, the last of which has the ``digest`` and has been held since that
        time."""
        self._tables[digest] = blocks, held_since
        self._tables.move_to_end(digest)
        if len(self._tables) > MAX_TABLES:
            self._tables.popitem(last=False)

    def find(self, chain: PrefixChain, num_blocks: int) -> tuple[Blocks, int]:
        """Return the blocks of a recent prefix that ends within the last of the first
        ``num_blocks`` blocks of ``chain``, and the time since which the last of them was held; no
        blocks and 0 if there is none."""
        if num_blocks >= MIN_BLOCKS:
            first = max(0, num_blocks - LOOK_BACK)
            for digest in reversed(chain.digests[first:num_blocks]):
                if (found := self._tables.get(digest)) is not None:
                    return found
        return _NONE, 0
