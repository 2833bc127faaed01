"""The speed of a crowd's answers on the virtual clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil
from random import Random
from statistics import harmonic_mean
from typing import NamedTuple

from specmesh.bench.crowd.grid import CrowdCell
from specmesh.bench.crowd.targets import TARGETS
from specmesh.decoding.predict.acceptance_rate import MeshAcceptance
from specmesh.orchestrator.strategies import LOSSLESS, STRATEGIES
from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.simulation.clock import Clock
from specmesh.simulation.costs import Hop, MeshCosts
from specmesh.simulation.law import ForwardShape
from specmesh.simulation.mesh import MeshModel, SimulatedMesh
from specmesh.simulation.models import AcceptanceRates
from specmesh.simulation.run import crowd_tokens_per_s
from specmesh.tools.kit.experiment import AUTOREGRESSIVE

AUTO = "auto"
"""The strategy that chooses among the others, once the registry has it."""
CHOICES = tuple(name for name in LOSSLESS if name not in {AUTOREGRESSIVE, AUTO})
"""Lossless strategies that are compared with the target alone."""

SHORTEST, LONGEST = 80, 200
"""Tokens of an answer, between which all lengths are equally likely."""
TOKENS_EACH = 100
"""Tokens for each member of a crowd."""
LEAST_TOKENS = 400
"""Tokens of a smaller crowd together, so that it does not only learn."""
MEASURED_TOKENS = 3200
"""Tokens of a cell, on as many new meshes as it takes: the 400 of a single answer differ by several
percent with the luck of its drafts, and the best of several strategies is then the luckiest."""
HOP_MS = 1.0
"""Time of a call, there and back, besides its forward."""
JITTER = 0.05
"""Relative variation of forwards, without which answers would stay in step for ever."""


class Task(NamedTuple):
    """One simulation."""

    cell: CrowdCell
    strategy: str


@dataclass(frozen=True, slots=True)
class CellSpeeds:
    """Tokens per second of all answers in a cell together: of the target ``alone``, of ``auto``
    (None while there is no such strategy), and of each other strategy."""

    cell: CrowdCell
    alone: float
    auto: float | None
    strategies: dict[str, float]


def tasks(cells: Sequence[CrowdCell], strategies: Sequence[str]) -> list[Task]:
    """Return the simulations of ``cells`` with the target alone, ``strategies`` and ``auto``."""
    auto = (AUTO,) if AUTO in STRATEGIES else ()
    names = (AUTOREGRESSIVE, *strategies, *auto)
    return [Task(cell, name) for cell in cells for name in names]


def tokens_per_s(task: Task) -> float:
    """Return the tokens of a crowd per second, on several meshes if it is small: the harmonic mean,
    since it generates as many on each. Equal tasks have equal results."""
    num_meshes = ceil(MEASURED_TOKENS / _num_tokens(task.cell))
    return harmonic_mean([_tokens_per_s_of_mesh(task, seed) for seed in range(num_meshes)])


def _num_tokens(cell: CrowdCell) -> int:
    return max(LEAST_TOKENS, TOKENS_EACH * cell.answers)


def _tokens_per_s_of_mesh(task: Task, seed: int) -> float:
    """Simulate a crowd whose orchestrator measures, from its first call on."""
    cell, strategy = task
    target = TARGETS[cell.forward]
    drafter, hop = target.scaled(cell.cost), Hop(HOP_MS)
    costs = MeshCosts(target.law, (drafter,), drafter, hop, hop)
    model = MeshModel(
        *(costs, cell.replicas, cell.replicas), batch=target.batch, jitter=JITTER, measures=True
    )
    rng = Random(seed)  # noqa: S311 - a benchmark must repeat
    forward_s = target.law.ms(ForwardShape()) / 1e3
    return crowd_tokens_per_s(
        SimulatedMesh(Clock(), model, seed),
        _strategies(strategy, rng),
        AcceptanceRates(cell.acceptance).models(seed),
        begin_s=[forward_s * rng.random() for _ in range(cell.answers)],
        num_tokens=_num_tokens(cell),
    )


def gathered(found: Sequence[tuple[Task, float]]) -> list[CellSpeeds]:
    """Return the results of all tasks by cell."""
    speeds: dict[CrowdCell, dict[str, float]] = {}
    for task, speed in found:
        speeds.setdefault(task.cell, {})[task.strategy] = round(speed, 2)
    return [
        CellSpeeds(cell, own.pop(AUTOREGRESSIVE), own.pop(AUTO, None), own)
        for cell, own in speeds.items()
    ]


def _strategies(name: str, rng: Random) -> Iterator[Strategy]:
    acceptance = MeshAcceptance()
    for number in count():
        goal = Goal(rng.randint(SHORTEST, LONGEST), seed=number, acceptance=acceptance)
        yield STRATEGIES[name](goal)
