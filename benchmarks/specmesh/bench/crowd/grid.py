"""The meshes and crowds that the benchmark simulates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from specmesh.bench.crowd.targets import TARGETS

ACCEPTANCES = (0.4, 0.6, 0.8, 0.95)
COSTS = (0.02, 0.1, 0.3)
ANSWERS = (1, 4, 16, 32, 64, 256)
REPLICAS = (1, 2, 8)
USUAL_ANSWERS = ANSWERS[:-1]
"""The largest crowd takes as long to simulate as all others together."""


@dataclass(frozen=True, slots=True)
class CrowdCell:
    """A crowd of ``answers`` at a mesh of ``replicas`` of the target ``forward``.

    Drafters, as many as replicas, are right at the rate ``acceptance``, and their forwards take the
    share ``cost`` of the target's. The target's heads are as fast and as good.
    """

    forward: str
    acceptance: float
    cost: float
    answers: int
    replicas: int


@dataclass(frozen=True, slots=True)
class CrowdGrid:
    """The values of each property of a cell."""

    forwards: Sequence[str] = tuple(TARGETS)
    acceptances: Sequence[float] = ACCEPTANCES
    costs: Sequence[float] = COSTS
    answers: Sequence[int] = USUAL_ANSWERS
    replicas: Sequence[int] = REPLICAS

    def cells(self, most: int) -> list[CrowdCell]:
        """Return all combinations; of more than ``most``, always the same random ones, the largest
        crowds first."""
        every = [
            CrowdCell(*values)
            for values in product(
                dict.fromkeys(self.forwards),
                dict.fromkeys(self.acceptances),
                dict.fromkeys(self.costs),
                dict.fromkeys(self.answers),
                dict.fromkeys(self.replicas),
            )
        ]
        if len(every) > most:
            every = Random(0).sample(every, most)  # noqa: S311 - a benchmark must repeat
        return sorted(every, key=lambda cell: -cell.answers)
