"""The search for the smallest mesh that meets the objectives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.tools.plan.predict import MeshPrediction, ReplicaCounts, alone, predict
from specmesh.tools.plan.setting import PlanSetting

MOST_REPLICAS = 512
"""Maximum number of replicas of a role in a cell."""
_AMPLE = ReplicaCounts(verifiers=8, drafters=1)
"""Ample replicas for a single answer."""
_LEAST = ReplicaCounts(verifiers=1, drafters=1)


@dataclass(frozen=True, slots=True)
class SmallestMesh:
    """The result of a search for one strategy. ``best`` is the smallest mesh that meets the
    objectives, None if there is none; ``fewer`` the same with one verifier less in each cell;
    ``alone`` the prediction for an answer that has a mesh to itself."""

    strategy: str
    best: MeshPrediction | None
    fewer: MeshPrediction | None
    alone: MeshPrediction


def plan(setting: PlanSetting, strategy: str) -> SmallestMesh:
    """Find the smallest mesh for one strategy."""
    ample = alone(setting, strategy, _for(strategy, _AMPLE))
    if ample.attained < setting.attain:
        return SmallestMesh(strategy, None, None, ample)
    known: dict[ReplicaCounts, MeshPrediction] = {}

    def predicted(counts: ReplicaCounts) -> MeshPrediction:
        if counts not in known:
            known[counts] = predict(setting, strategy, counts)
        return known[counts]

    def meets(counts: ReplicaCounts) -> bool:
        return predicted(counts).meets(setting.attain)

    # A lower bound from the work to be done; in batches several answers share it.
    least = alone(setting, strategy, _for(strategy, _LEAST))
    rate = setting.rate / setting.cells / setting.batch
    start = ReplicaCounts(
        max(1, math.floor(rate * least.verify_s)), max(1, math.floor(rate * least.draft_s))
    )
    grown = _grow(_for(strategy, start), predicted, setting.attain)
    if grown is None:
        return SmallestMesh(strategy, None, None, ample)
    counts = _shrink(grown, meets)
    fewer = replace(counts, verifiers=counts.verifiers - 1)
    return SmallestMesh(
        strategy,
        predicted(counts),
        predicted(fewer) if fewer.verifiers else None,
        ample,
    )


def _for(strategy: str, counts: ReplicaCounts) -> ReplicaCounts:
    return counts if STRATEGIES[strategy].asks_drafter else replace(counts, drafters=0)


def _grow(
    counts: ReplicaCounts, predicted: Callable[[ReplicaCounts], MeshPrediction], share: float
) -> ReplicaCounts | None:
    """Add replicas of the busier role until the objectives are met; return None if they never
    are."""
    while not (found := predicted(counts)).meets(share):
        if found.drafter_utilisation > found.verifier_utilisation:
            counts = replace(counts, drafters=_more(counts.drafters))
        else:
            counts = replace(counts, verifiers=_more(counts.verifiers))
        if max(counts.verifiers, counts.drafters) > MOST_REPLICAS:
            return None
    return counts


def _more(number: int) -> int:
    return number + max(1, number // 8)


def _shrink(counts: ReplicaCounts, meets: Callable[[ReplicaCounts], bool]) -> ReplicaCounts:
    """Remove replicas, verifiers first, as long as the objectives are met."""
    for role in ("verifiers", "drafters"):
        while (number := getattr(counts, role)) > 1:
            fewer = replace(counts, **{role: number - 1})
            if not meets(fewer):
                break
            counts = fewer
    return counts
