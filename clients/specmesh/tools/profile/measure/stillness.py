"""How fast ways of decoding would have gone on cores that nobody else slowed down."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from specmesh.tools.profile.law import Vector, nonnegative_least_squares

Tried = TypeVar("Tried", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a way of decoding went in one try, and how fast its cores were meanwhile."""

    rounds_per_s: float
    core_ms: Mapping[str, float]
    """What a fixed piece of work took on the cores of each role that took part; empty where nobody
    watched them."""


def on_still_cores(paces: Mapping[Tried, Mapping[int, Pace]]) -> dict[Tried, dict[int, float]]:
    """Rounds a second of each of the ``paces``, which have numbers, had all cores been as fast as
    in the try in which they were fastest.

    A round is taken to last longer by a power of how much longer the work takes on each role's
    cores, the same powers for all that was tried.
    """
    every = [pace for own in paces.values() for pace in own.values()]
    roles = sorted({role for pace in every for role in pace.core_ms})
    fastest = {role: min(each.core_ms.get(role, math.inf) for each in every) for role in roles}

    def slowness(pace: Pace) -> Vector:
        # The cores of a role that takes no part may be as slow as they like.
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
    """Those by which the tries of one thing, each of them the slowness of its cores and a speed,
    differ the least from their mean: at least 0, at most 1."""
    rows, wanted = [], []
    for own in tries:
        slowness = np.array([each for each, _ in own])
        speeds = np.log([speed for _, speed in own])
        rows.append(slowness - slowness.mean(axis=0))
        wanted.append(speeds.mean() - speeds)
    return np.minimum(1.0, nonnegative_least_squares(np.vstack(rows), np.concatenate(wanted)))
