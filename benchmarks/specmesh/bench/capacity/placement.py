"""The cores of each part: the measured one has a core for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_ALL_APART = 4
"""Cores from which on verifier and drafter have one each, too."""


@dataclass(frozen=True, slots=True)
class CorePlan:
    """A set of core numbers for each process; an empty set means all cores.

    ``rest`` is for Redis, the trace collector, the generators and this process.
    """

    orchestrator: frozenset[int]
    verifier: frozenset[int]
    drafter: frozenset[int]
    rest: frozenset[int]

    @property
    def num_generators(self) -> int:
        """Return how many generator processes can run at once."""
        return max(1, len(self.rest))


def plan_cores(cores: Sequence[int]) -> CorePlan:
    """Divide ``cores`` (core numbers, in order): the orchestrator gets the first one alone, and the
    models' processes one each if there are four or more."""
    if len(cores) < 2:  # noqa: PLR2004 - nothing to divide
        anywhere = frozenset(cores)
        return CorePlan(anywhere, anywhere, anywhere, anywhere)
    first, *others = cores
    if len(cores) < _ALL_APART:
        shared = frozenset(others)
        return CorePlan(frozenset({first}), shared, shared, shared)
    verifier, drafter, *rest = others
    return CorePlan(*map(frozenset, ({first}, {verifier}, {drafter}, rest)))
