"""The distribution of work over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from specmesh.tools.kit.processes import processes

Item = TypeVar("Item")
Result = TypeVar("Result")


def spread(work: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    """Yield the results of ``work`` for each item, in order; ``work`` and items must be
    picklable."""
    if workers == 1:
        yield from map(work, items)
        return
    with processes(workers) as pool:
        # Chunks are small, because some items take far longer than others.
        chunksize = max(1, min(8, len(items) // (8 * workers)))
        yield from pool.map(work, items, chunksize=chunksize)
