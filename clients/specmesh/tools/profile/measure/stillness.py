"""The correction of speeds for cores that other work slowed down."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.optimize import nnls

from specmesh.tools.profile.law import Vector

Tried = TypeVar("Tried", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of a way of decoding in one try, and the speed of its cores meanwhile."""

    rounds_per_s: float
    core_ms: Mapping[str, float]
    """Time of a fixed piece of work on the cores of each participating role; empty if nobody
    watched them."""


def on_still_cores(paces: Mapping[Tried, Mapping[int, Pace]]) -> dict[Tried, dict[int, float]]:
    """Return the rounds per second of each of the numbered ``paces`` if all cores had been as fast
    as in their fastest try.

    The duration of a round is modelled as a product of powers of the slowdowns of each role's
    cores, with the same powers for everything that was tried.
    """
    every = [pace for own in paces.values() for pace in own.values()]
    roles = sorted({role for pace in every for role in pace.core_ms})
    fastest = {role: min(each.core_ms.get(role, math.inf) for each in every) for role in roles}

    def slowness(pace: Pace) -> Vector:
        # The speed of the cores of an uninvolved role does not matter.
        return np.array(
            [math.log(pace.core_ms.get(role, fastest[role]) / fastest[role]) for role in roles]
        )

    powers = _powers(
        [[(slowness(pace), pace.rounds_per_s) for pace in own.values()] for own in paces.values()]
    )
    return {
        key: {at: pace.rounds_per_s * math.exp(slowness(pace) @ powers) for at, pace in own.items()}
        for key, own in paces.items()
    }


def _powers(tries: Collection[Sequence[tuple[Vector, float]]]) -> Vector:
    """Return the powers, in [0, 1], that minimise the deviation of corrected speeds from their
    mean. ``tries`` has for each thing its tries, as the slowness of its cores and a speed."""
    rows, wanted = [], []
    for own in tries:
        slowness = np.array([each for each, _ in own])
        speeds = np.log([speed for _, speed in own])
        rows.append(slowness - slowness.mean(axis=0))
        wanted.append(speeds.mean() - speeds)
    stacked = np.vstack(rows)
    if not stacked.shape[1]:  # scipy 1.17 crashes without columns.
        return np.zeros(0)
    found: Vector = np.minimum(1.0, nnls(stacked, np.concatenate(wanted))[0])
    return found
