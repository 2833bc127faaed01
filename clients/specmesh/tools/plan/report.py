"""The plan, as a JSON object and as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from specmesh.tools.kit.tables import make_table
from specmesh.tools.plan.predict import MeshPrediction
from specmesh.tools.plan.search import SmallestMesh
from specmesh.tools.plan.setting import PlanSetting

CORE_SHARE = 0.7
"""Maximum share of its core that an orchestrator should use."""
SOONER = 0.8
"""The share of an answer's time that a strategy may take to be clearly faster."""
FEW_MORE = 1.25
"""The share of the processes up to which another mesh has few more."""


def cost(prediction: MeshPrediction, drafter_cost: float) -> float:
    """Return the cost of the replicas, in verifiers."""
    return prediction.verifiers + drafter_cost * prediction.drafters


def recommended(planned: Sequence[SmallestMesh], drafter_cost: float) -> SmallestMesh | None:
    """Return the cheapest mesh, and among equals the fastest; None if none meets the objectives."""

    def order(each: SmallestMesh) -> tuple[float, float]:
        assert each.best is not None
        return cost(each.best, drafter_cost), each.best.e2e_ms.p50

    return min((each for each in planned if each.best is not None), key=order, default=None)


def as_json(
    setting: PlanSetting, planned: Sequence[SmallestMesh], drafter_cost: float
) -> dict[str, Any]:
    """Return the whole plan; ``fewer`` is the mesh with one verifier less in each cell."""
    best = recommended(planned, drafter_cost)
    objectives = asdict(setting.objectives)
    return {
        "rate": setting.rate,
        "mean_output_tokens": setting.mean_output,
        "cells": setting.cells,
        "objectives_s": {name: each for name, each in objectives.items() if each is not None},
        "attain": setting.attain,
        "recommended": None if best is None else best.strategy,
        "strategies": {each.strategy: _planned(each) for each in planned},
    }


def _planned(planned: SmallestMesh) -> dict[str, Any]:
    return {
        "best": None if planned.best is None else _prediction(planned.best),
        "fewer": None if planned.fewer is None else _prediction(planned.fewer),
        "alone": _prediction(planned.alone),
    }


def _prediction(prediction: MeshPrediction) -> dict[str, Any]:
    found = asdict(prediction)
    del found["counts"], found["strategy"]
    return {"verifiers": prediction.verifiers, "drafters": prediction.drafters, **found}


def table(setting: PlanSetting, planned: Sequence[SmallestMesh], drafter_cost: float) -> Table:
    """Return a table with a line for each strategy's smallest mesh, and one for a verifier less."""
    made = make_table(
        f"{setting.rate:g} requests/s of {setting.mean_output:.0f} tokens, "
        f"{setting.attain:.0%} within {_promised(setting)}",
        *("strategy", "verifiers", "drafters", "TTFT p50, p95 ms", "TPOT p50, p95 ms"),
        *("e2e p50 s", "within", "verifiers busy", "drafters busy", "orchestrators"),
    )
    for each in planned:
        if each.best is None:
            alone = f"alone {each.alone.ttft_ms.p95:.0f}", f"alone {each.alone.tpot_ms.p95:.1f}"
            made.add_row(each.strategy, "none", "", *alone)
            continue
        made.add_row(each.strategy, *_cells(each.best))
        if each.fewer is not None:
            made.add_row(f"  {setting.cells} fewer", *_cells(each.fewer), style="dim")
    best = recommended(planned, drafter_cost)
    if best is None:
        made.caption = "No mesh meets the objectives; shown are the latencies of an answer alone."
    else:
        assert best.best is not None
        made.caption = (
            f"Cheapest by verifiers + drafters × {drafter_cost:g} (orchestrators are not counted): "
            f"{best.strategy} with {_roles(best.best)}; and one more of each, so that one of each "
            f"may fail.{_sooner(best.best, planned)}"
        )
    for each in planned:
        if each.best is not None and each.fewer is not None:
            fault = each.fewer.fault(setting.attain)
            made.caption += f"\n{each.strategy} with {setting.cells} fewer: {fault}."
    if setting.cells > 1:
        made.caption += f"\nSimulated as {setting.cells} cells of equal load and replicas."
    return made


def processes(prediction: MeshPrediction) -> int:
    """Return the number of orchestrators, each of which can use a single core."""
    return max(1, math.ceil(prediction.orchestrator_cores / CORE_SHARE))


def _roles(prediction: MeshPrediction) -> str:
    """Return the processes of each role that the mesh has."""
    drafters = f"drafters: {prediction.drafters}, " if prediction.drafters else ""
    return f"verifiers: {prediction.verifiers}, {drafters}orchestrators: {processes(prediction)}"


def _sooner(best: MeshPrediction, planned: Sequence[SmallestMesh]) -> str:
    """Return a sentence about the fastest mesh of few more processes than the ``best`` has, if its
    answers come clearly sooner."""
    most, latest_ms = FEW_MORE * _num_processes(best), SOONER * best.e2e_ms.p50
    others = [each.best for each in planned if each.best is not None]
    sooner = [
        each for each in others if _num_processes(each) <= most and each.e2e_ms.p50 <= latest_ms
    ]
    if not sooner:
        return ""
    found = min(sooner, key=lambda each: each.e2e_ms.p50)
    return (
        f"\n{found.strategy} answers in {found.e2e_ms.p50 / 1e3:.2f} s instead of "
        f"{best.e2e_ms.p50 / 1e3:.2f} s, with {_num_processes(found)} processes instead of "
        f"{_num_processes(best)} ({_roles(found)})."
    )


def _num_processes(prediction: MeshPrediction) -> int:
    return prediction.verifiers + prediction.drafters + processes(prediction)


def _cells(found: MeshPrediction) -> tuple[str, ...]:
    return (
        str(found.verifiers),
        str(found.drafters),
        f"{found.ttft_ms.p50:.0f}, {found.ttft_ms.p95:.0f}",
        f"{found.tpot_ms.p50:.1f}, {found.tpot_ms.p95:.1f}",
        f"{found.e2e_ms.p50 / 1e3:.2f}",
        f"{found.attained:.0%}",
        f"{found.verifier_utilisation:.0%}",
        f"{found.drafter_utilisation:.0%}" if found.drafters else "",
        str(processes(found)),
    )


def _promised(setting: PlanSetting) -> str:
    objectives = setting.objectives
    bounds = (("TTFT", objectives.ttft_s), ("TPOT", objectives.tpot_s), ("e2e", objectives.e2e_s))
    return ", ".join(f"{name} {each * 1e3:g} ms" for name, each in bounds if each is not None)
