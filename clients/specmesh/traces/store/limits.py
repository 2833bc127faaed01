"""How much a store may hold, and how its size is kept below that: arithmetic alone.

SQLite writes first to a log (WAL) beside the database, so the limit is shared out between the
two. The database is held by SQLite itself (``max_page_count``); the log by writing little at a
time, and nothing before the log has been emptied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

PAGE_BYTES = 4096
_SHARED_MEMORY_BYTES = 64 * 1024
"""The -shm file, for as long a log as is allowed here."""
_MAX_LOG_BYTES = 32 * 1024 * 1024
_PAGES_OF_A_ROW = 2
"""What a trace needs in tables and indexes, beside its blob; at most."""
_LOG_PER_PAGE = 3
"""Pages in the log for each page written: itself, those freed for it, their map."""

MIN_BYTES = 4 * 1024 * 1024
"""The smallest limit: below it there is no room for a log and a trace."""


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """``max_bytes`` on disk, all files together, at least ``MIN_BYTES``; traces older than
    ``max_age_s`` seconds go as well."""

    max_bytes: int = 512 * 1024 * 1024
    max_age_s: float = 7 * 86400.0

    @property
    def log_bytes(self) -> int:
        """How long the log may become."""
        return min(self.max_bytes // 4, _MAX_LOG_BYTES)

    @property
    def num_pages(self) -> int:
        """How many pages the database may have."""
        return (self.max_bytes - self.log_bytes - _SHARED_MEMORY_BYTES) // PAGE_BYTES

    @property
    def batch_pages(self) -> int:
        """Pages that one transaction may write, so that the log can take them."""
        return self.log_bytes // (2 * _LOG_PER_PAGE * PAGE_BYTES)


def pages_for(blob_bytes: int) -> int:
    """How many pages a trace with a blob of that size takes, at most."""
    return _PAGES_OF_A_ROW + -(-blob_bytes // (PAGE_BYTES - 4))


class Sized(Protocol):
    """Something with a blob."""

    @property
    def blob(self) -> bytes:
        """Its bytes."""
        ...


Item = TypeVar("Item", bound=Sized)


def batches(items: Iterable[Item], max_pages: int) -> Iterator[Sequence[Item]]:
    """``items`` in lists of at most ``max_pages``; one that is larger has a list of its own."""
    batch: list[Item] = []
    size = 0
    for item in items:
        num_pages = pages_for(len(item.blob))
        if batch and size + num_pages > max_pages:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += num_pages
    if batch:
        yield batch
