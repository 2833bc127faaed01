"""Stretches of time as pairs (start, end), in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """What at least one of them covers, as disjoint intervals in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif start < end:
            merged.append((start, end))
    return merged


def without(whole: Interval, parts: Iterable[Interval]) -> list[Interval]:
    """What none of ``parts`` covers of ``whole``."""
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
    """The total length of disjoint intervals."""
    return sum(end - start for start, end in disjoint) / 1e6
