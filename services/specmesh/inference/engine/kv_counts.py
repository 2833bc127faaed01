"""The interface by which every KV cache reports its use."""

from __future__ import annotations

from typing import Protocol


class KvCounts(Protocol):
    """The use of a KV cache, in blocks and tokens. Any thread may read it."""

    @property
    def capacity_tokens(self) -> int:
        """The most tokens that one sequence can hold, including its tree."""
        ...

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        ...

    @property
    def num_cached(self) -> int:
        """Blocks that no call uses but whose tokens can be found."""
        ...

    @property
    def num_used(self) -> int:
        """Blocks in use by running calls."""
        ...

    @property
    def num_shared(self) -> int:
        """Blocks in use by more than one running call."""
        ...

    @property
    def num_evicted(self) -> int:
        """Cached blocks evicted so far."""
        ...

    @property
    def num_looked_up_tokens(self) -> int:
        """Tokens of all prefixes so far."""
        ...

    @property
    def num_hit_tokens(self) -> int:
        """Tokens of all prefixes so far that were cached."""
        ...
