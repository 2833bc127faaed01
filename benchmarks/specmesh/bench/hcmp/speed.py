"""The times of forwards by the shares of the units, side by side with the undivided model's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from specmesh.bench.hcmp.divided import crew_of
from specmesh.bench.hcmp.shapes import VOCAB_SIZE
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.model import Cancellation
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.inference.models.units.members.cpu_unit import CpuUnit
from specmesh.inference.models.units.plans.planner import WINDOW, FixedPlan, Planner

CONTEXT = 256
SHARES = tuple(number / 10 for number in range(11))
"""Shares of the second unit, in every layer and in attention to committed tokens."""
TURN_SECONDS = 0.01
"""Time for which a way of dividing is timed, for at least one forward, before it is the next one's
turn."""
SECONDS = 5.0
MIN_ROUNDS = 3
MAX_ROUNDS = 15
"""Maximum number of rounds. Turns alternate for ``SECONDS``, so that other load on the machine
affects all ways equally."""
FINAL_ROUNDS = 25
"""Number of turns in which the best share and the plan are timed again: the shortest of eleven
medians was partly a lucky one."""
ADAPTING_FORWARDS = 2 * WINDOW + 2


@dataclass(frozen=True, slots=True)
class Speeds:
    """The median milliseconds of a forward of ``width`` tokens.

    The second unit computes each of its slices ``slowness`` times. ``best_share`` is the one with
    the shortest forward; ``best_ms`` and ``planned_ms`` were timed afterwards, side by side.
    ``plain_ms`` is that of the undivided model, by torch's threads, which are not slowed down.
    ``adapted_share`` is the second unit's share in the plan for equal units after it has adapted to
    a slower one while serving.
    """

    width: int
    slowness: int
    by_share_ms: Mapping[float, float]
    best_share: float
    best_ms: float
    planned_ms: float
    planned_share: float
    adapted_share: float
    plain_ms: Mapping[int, float]

    @property
    def over_best(self) -> float:
        """Return the planned forward's time as a multiple of the best one's."""
        return self.planned_ms / self.best_ms


def time_widths(
    divided: TransformersModel,
    plain: TransformersModel,
    widths: Sequence[int],
    slowness: int,
    equal: Planner,
) -> list[Speeds]:
    """Return the speeds of forwards of ``widths``, with a second unit that is ``slowness`` times
    slower than the first. ``equal`` was measured with units of equal speed."""
    crew = crew_of(divided)
    (unit,) = crew.units
    assert isinstance(unit, CpuUnit)
    unit.times = slowness
    planner = crew.measure()
    try:
        return [_speeds(divided, plain, width, slowness, planner, equal) for width in widths]
    finally:
        unit.times = 1


def _speeds(
    divided: TransformersModel,
    plain: TransformersModel,
    width: int,
    slowness: int,
    planner: Planner,
    equal: Planner,
) -> Speeds:
    crew = crew_of(divided)
    on_own = _forward(divided, width)
    undivided = _forward(plain, width)

    def divide(plan: FixedPlan | Planner) -> Callable[[], float]:
        def turn() -> float:
            crew.use(plan)
            return _turn(on_own)

        return turn

    def with_threads(count: int) -> Callable[[], float]:
        def turn() -> float:
            own = os.sched_getaffinity(0), torch.get_num_threads()
            os.sched_setaffinity(0, crew.cores)
            torch.set_num_threads(count)
            try:
                return _turn(undivided)
            finally:
                os.sched_setaffinity(0, own[0])
                torch.set_num_threads(own[1])

        return turn

    turns: dict[Hashable, Callable[[], float]] = {
        share: divide(FixedPlan((1 - share, share))) for share in SHARES
    }
    turns |= {1j: with_threads(1), 2j: with_threads(2)}
    ms = _in_turns(turns, MIN_ROUNDS)
    best_share = min(SHARES, key=ms.__getitem__)
    final_ms = _in_turns({"best": turns[best_share], "planned": divide(planner)}, FINAL_ROUNDS)
    planned_share = share_of_second(planner, divided, width)
    adapting = Planner(equal.measured, 2)
    crew.use(adapting)
    for _ in range(ADAPTING_FORWARDS):
        on_own()
    return Speeds(
        width=width,
        slowness=slowness,
        by_share_ms={share: ms[share] for share in SHARES},
        best_share=best_share,
        best_ms=final_ms["best"],
        planned_ms=final_ms["planned"],
        planned_share=planned_share,
        adapted_share=share_of_second(adapting, divided, width),
        plain_ms={1: ms[1j], 2: ms[2j]},
    )


def _in_turns(turns: Mapping[Hashable, Callable[[], float]], rounds: int) -> dict[Hashable, float]:
    """Return the median milliseconds of each way, over ``rounds`` and as many more as there is time
    for."""
    seconds: dict[Hashable, list[float]] = {way: [] for way in turns}
    end = time.perf_counter() + SECONDS
    for done in range(max(rounds, MAX_ROUNDS)):
        if done >= rounds and time.perf_counter() > end:
            break
        for way, turn in turns.items():
            seconds[way].append(turn())
    return {way: median(each) * 1e3 for way, each in seconds.items()}


def share_of_second(planner: Planner, model: TransformersModel, width: int) -> float:
    """Return the second unit's share of all multiplications by weights, in forwards of
    ``width``."""
    sizes = {
        work: len(layers) * work.features * work.columns
        for work, layers in crew_of(model).works.items()
    }
    given = sum(size * planner.shares(work, width)[1] for work, size in sizes.items())
    return given / sum(sizes.values())


def _forward(model: TransformersModel, width: int) -> Callable[[], float]:
    """Return a function that times a forward of a cached prefix's last token and a random tree
    below it, in seconds."""
    rng = np.random.default_rng(width)
    prefix = rng.integers(0, VOCAB_SIZE, CONTEXT).tolist()
    parents = tuple(int(rng.integers(0, node + 1)) for node in range(width - 1))
    tree = TokenTree(tuple(rng.choice(VOCAB_SIZE, width - 1, replace=False).tolist()), parents)

    def forward() -> float:
        sequence = model.open(prefix, Cancellation())
        began = time.perf_counter()
        sequence.score(tree)
        seconds = time.perf_counter() - began
        sequence.close(())
        return seconds

    forward()  # It caches the prefix.
    return forward


def _turn(forward: Callable[[], float]) -> float:
    """Return the median of some forwards after one that warms up."""
    forward()
    seconds: list[float] = []
    while sum(seconds) < TURN_SECONDS:
        seconds.append(forward())
    return median(seconds)
