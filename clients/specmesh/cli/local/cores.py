"""The placement of processes on cores.

A drafter works while the target does, so it gets another core. Each verifier gets ``threads``
cores as far as they suffice, and the orchestrator, Redis and the client get the rest. Without a
rest they share the drafter's core: with many answers the target never waits, and a drafter does.
Threads wait for each other, so more of them than cores would be slower than one: a verifier that is
to have as many as there are cores gets the drafter's, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placement:
    """A set of core numbers for each process; an empty set means all cores."""

    verifiers: tuple[frozenset[int], ...]
    drafter: frozenset[int]
    rest: frozenset[int]


def place(cores: Sequence[int], num_verifiers: int, threads: int) -> Placement:
    """Divide ``cores`` (core numbers, in order); each verifier has ``threads`` threads."""
    if len(cores) < 2:  # noqa: PLR2004 - nothing to divide
        anywhere = frozenset(cores)
        return Placement((anywhere,) * num_verifiers, anywhere, anywhere)
    *others, last = cores
    needed = num_verifiers * threads
    rest = frozenset(others[needed:] or [last])
    if len(others) < threads:
        return Placement((frozenset(cores),) * num_verifiers, frozenset({last}), rest)
    if len(others) < needed:
        return Placement((frozenset(others),) * num_verifiers, frozenset({last}), rest)
    slices = (others[n * threads : (n + 1) * threads] for n in range(num_verifiers))
    return Placement(tuple(map(frozenset, slices)), frozenset({last}), rest)


def available() -> tuple[int, ...]:
    """Return the cores that this process may use; empty if the system doesn't tell."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))


@contextmanager
def pinned_to(cores: frozenset[int]) -> Iterator[None]:
    """Pin this thread, and the threads it starts, to some cores while the block runs."""
    before = available()
    if cores and before:
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        if cores and before:
            os.sched_setaffinity(0, before)
