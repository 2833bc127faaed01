"""Which process runs on which cores.

A drafter works while the target does, so it gets a core of its own. Verifiers get ``threads``
each, as far as there are cores; what is left is for orchestrator, Redis and client. With too
few cores those share the verifiers': they work while a verifier waits, and the other way round.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placement:
    """A set of core numbers for each process; an empty one stands for all cores."""

    verifiers: tuple[frozenset[int], ...]
    drafter: frozenset[int]
    rest: frozenset[int]


def place(cores: Sequence[int], num_verifiers: int, threads: int) -> Placement:
    """Share out ``cores`` (numbers, in order); ``threads`` are those of each verifier."""
    if len(cores) < 2:  # noqa: PLR2004 - nothing to share out
        anywhere = frozenset(cores)
        return Placement((anywhere,) * num_verifiers, anywhere, anywhere)
    *others, last = cores
    needed = num_verifiers * threads
    rest = frozenset(others[needed:] or others)
    if len(others) < needed:
        return Placement((frozenset(others),) * num_verifiers, frozenset({last}), rest)
    slices = (others[n * threads : (n + 1) * threads] for n in range(num_verifiers))
    return Placement(tuple(map(frozenset, slices)), frozenset({last}), rest)


def available() -> tuple[int, ...]:
    """The cores this process may use; none where the system doesn't say."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))


@contextmanager
def pinned_to(cores: frozenset[int]) -> Iterator[None]:
    """Keep this thread, and those it starts, on some cores for the length of a block."""
    before = available()
    if cores and before:
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        if cores and before:
            os.sched_setaffinity(0, before)
