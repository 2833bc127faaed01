"""Size limits of a store, by pure arithmetic.

SQLite first writes to a log (WAL) beside the database, so the limit is divided between the two.
SQLite itself bounds the database (``max_page_count``). The log is bounded by small transactions,
each of which begins only when the log has been emptied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

PAGE_BYTES = 4096
_SHARED_MEMORY_BYTES = 64 * 1024
"""Size of the -shm file for the longest log that is allowed here."""
_MAX_LOG_BYTES = 32 * 1024 * 1024
_PAGES_OF_A_ROW = 2
"""Most pages that a trace needs in tables and indexes, besides its blob."""
_LOG_PER_PAGE = 3
"""Pages in the log for each page written: itself, those freed for it, and their map."""

MIN_BYTES = 4 * 1024 * 1024
"""The smallest limit, which leaves room for a log and a trace."""


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Limits of a store: ``max_bytes`` on disk of all files together, at least ``MIN_BYTES``,
    ``max_age_s``, the age in seconds above which traces are deleted, and ``max_joined_spans``, the
    number of spans up to which late ones are added to a stored trace."""

    max_bytes: int = 512 * 1024 * 1024
    max_age_s: float = 7 * 86400.0
    max_joined_spans: int = 50_000

    @property
    def log_bytes(self) -> int:
        """Most bytes of the log."""
        return min(self.max_bytes // 4, _MAX_LOG_BYTES)

    @property
    def num_pages(self) -> int:
        """Most pages of the database."""
        return (self.max_bytes - self.log_bytes - _SHARED_MEMORY_BYTES) // PAGE_BYTES

    @property
    def batch_pages(self) -> int:
        """Most pages that one transaction may write without exceeding the log."""
        return self.log_bytes // (2 * _LOG_PER_PAGE * PAGE_BYTES)


def pages_for(blob_bytes: int) -> int:
    """Return the most pages that a trace with a blob of that size takes."""
    return _PAGES_OF_A_ROW + -(-blob_bytes // (PAGE_BYTES - 4))


Item = TypeVar("Item")


def batches(
    items: Iterable[Item], max_pages: int, pages_of: Callable[[Item], int]
) -> Iterator[Sequence[Item]]:
    """Divide ``items`` into batches of at most ``max_pages``; a larger item has its own batch."""
    batch: list[Item] = []
    size = 0
    for item in items:
        num_pages = pages_of(item)
        if batch and size + num_pages > max_pages:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += num_pages
    if batch:
        yield batch
