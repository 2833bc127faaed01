"""What is told of a KV cache, whoever keeps it."""

from __future__ import annotations

from typing import Protocol


class KvCounts(Protocol):
    """How a KV cache is used, in blocks and tokens. Any thread may read it."""

    @property
    def capacity_tokens(self) -> int:
        """The most tokens that one sequence can hold, its tree's included."""
        ...

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        ...

    @property
    def num_cached(self) -> int:
        """Blocks that nobody uses, and whose tokens can be found."""
        ...

    @property
    def num_used(self) -> int:
        """Blocks of calls under way."""
        ...

    @property
    def num_shared(self) -> int:
        """Blocks of more than one call under way."""
        ...

    @property
    def num_evicted(self) -> int:
        """Cached blocks that were needed for something else, so far."""
        ...

    @property
    def num_looked_up_tokens(self) -> int:
        """Tokens of all prefixes so far."""
        ...

    @property
    def num_hit_tokens(self) -> int:
        """Those of them that were cached."""
        ...
