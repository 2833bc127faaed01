"""Which process runs on which cores.

Verifiers do nearly all the work, so they get cores of their own, ``threads`` each. Drafter
and orchestrator take turns with them more than with each other, so they share the last core,
together with Redis and the client, unless there are cores left for the drafter to have its
own. With too few cores the verifiers share what is left to them: on two cores all verifiers
sit on the first one and everything else on the second.
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
    needed = num_verifiers * threads
    *others, last = cores
    rest = drafter = frozenset({last})
    if len(others) > needed:
        drafter = frozenset({others.pop()})
    if len(others) < needed:
        return Placement((frozenset(others),) * num_verifiers, drafter, rest)
    slices = (others[n * threads : (n + 1) * threads] for n in range(num_verifiers))
    return Placement(tuple(map(frozenset, slices)), drafter, rest)


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
