"""Time intervals as pairs (start, end), in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of ``intervals`` as disjoint intervals in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif start < end:
            merged.append((start, end))
    return merged


def without(whole: Interval, parts: Iterable[Interval]) -> list[Interval]:
    """Return the parts of ``whole`` that none of ``parts`` covers, in order."""
    left: list[Interval] = []
    reached, last = whole
    for start, end in union(parts):
        if reached < min(start, last):
            left.append((reached, min(start, last)))
        reached = max(reached, end)
    if reached < last:
        left.append((reached, last))
    return left


def length_ms(disjoint: Iterable[Interval]) -> float:
    """Return the total length of disjoint intervals, in milliseconds."""
    return sum(end - start for start, end in disjoint) / 1e6
