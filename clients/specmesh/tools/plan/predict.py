"""The prediction of what users of a mesh would see, by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random

import numpy as np

from specmesh.load.results.objectives import Objectives
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.simulation.clock import Clock
from specmesh.simulation.mesh import SimulatedMesh
from specmesh.simulation.run import Answered, poisson_s, simulate_on
from specmesh.tools.plan.setting import PlanSetting

MOST_BUSY = 0.95
"""Utilisation above which a replica's queue hardly ever empties."""
_WARM_UP_ANSWERS = 1.5
"""Warm-up, as a multiple of the duration of an answer, after which queues have formed."""
_MEASURED_ANSWERS = 3.0
_COOL_DOWN_ANSWERS = 2.0
"""The same after the last answer that is measured, so that none is served in a mesh that
empties."""
_LONGER = (1, 2, 4)
"""Multiples of all three, tried in turn while answers outlast those that come after them. In a mesh
that is too small they always do."""
_LEAST_MEASURED = 100
_CLEARLY = 1.25
"""The factor from which on the latest answers take clearly longer than the first."""
_LEAST_ALONE, _MOST_ALONE = 20, 200
_ALONE_TOO_LATE = 10
"""The number of answers alone that may miss the objectives: one unlucky answer decides nothing."""
_ALONE_RATE = 1e-6
"""Requests per second so few that no two overlap."""


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """The replicas of a cell."""

    verifiers: int
    drafters: int


@dataclass(frozen=True, slots=True)
class Times:
    """A distribution of latencies of answers, in milliseconds."""

    mean: float
    p50: float
    p95: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Times:
        """Return the distribution of ``seconds``; zeros if it is empty."""
        if not seconds:
            return cls(0.0, 0.0, 0.0)
        found = (np.mean(seconds), *np.quantile(seconds, [0.5, 0.95]))
        return cls(*(round(float(each) * 1e3, 3) for each in found))


@dataclass(frozen=True, slots=True)
class MeshPrediction:
    """The prediction for one strategy on one mesh. ``attained`` is the share of answers within the
    objectives. Utilisations are means over replicas, above 1 if the queue only grows. Rates are
    totals of all cells."""

    strategy: str
    counts: ReplicaCounts
    cells: int
    ttft_ms: Times
    tpot_ms: Times
    e2e_ms: Times
    attained: float
    verifier_utilisation: float
    drafter_utilisation: float
    is_stable: bool
    """True if no role is so busy that its queue hardly ever empties. Replicas whose answers share
    forwards may well be busy all the time, but later answers must not take clearly longer."""
    verify_s: float
    """Verifiers' time per answer; ``draft_s`` is that of drafters."""
    draft_s: float
    verifications_per_s: float
    """Further tokens included, of which there are ``further_tokens_per_s``."""
    further_tokens_per_s: float
    tokens_per_s: float
    orchestrator_cores: float

    @property
    def verifiers(self) -> int:
        """Return the verifiers of all cells."""
        return self.counts.verifiers * self.cells

    @property
    def drafters(self) -> int:
        """Return the drafters of all cells."""
        return self.counts.drafters * self.cells

    def meets(self, share: float) -> bool:
        """Return whether ``share`` of the answers meet the objectives, with stable queues."""
        return not self.fault(share)

    def fault(self, share: float) -> str:
        """Return why it is insufficient for ``share`` of the answers; empty if it is not."""
        if self.attained < share:
            return f"only {self.attained:.0%} of the answers are within the objectives"
        return "" if self.is_stable else f"a role is over {MOST_BUSY:.0%} busy, so queues grow"


def predict(setting: PlanSetting, strategy: str, counts: ReplicaCounts) -> MeshPrediction:
    """Simulate one cell. The same setting always gives the same prediction."""
    rate = setting.rate / setting.cells
    for multiple in _LONGER:
        answer_s = multiple * setting.answer_s
        num_warm_up = math.ceil(_WARM_UP_ANSWERS * rate * answer_s)
        end = num_warm_up + max(_LEAST_MEASURED, math.ceil(_MEASURED_ANSWERS * rate * answer_s))
        later_s = _COOL_DOWN_ANSWERS * answer_s
        number = end + math.ceil(rate * later_s)
        measured = slice(num_warm_up, end)
        found = _simulate(setting, strategy, counts, rate, number, measured, later_s)
        if found.is_stable or found.attained < setting.attain:
            break
    return found


def num_alone(attain: float) -> int:
    """Return the number of answers alone by which to tell whether a share of ``attain`` is met."""
    too_late = max(1 - attain, _ALONE_TOO_LATE / _MOST_ALONE)
    return max(_LEAST_ALONE, round(_ALONE_TOO_LATE / too_late))


def alone(setting: PlanSetting, strategy: str, counts: ReplicaCounts) -> MeshPrediction:
    """Simulate answers that each have a mesh to themselves."""
    alone = replace(setting, rate=_ALONE_RATE)
    return _simulate(
        alone, strategy, counts, _ALONE_RATE, num_alone(setting.attain), slice(None), math.inf
    )


def _simulate(
    setting: PlanSetting,
    strategy: str,
    counts: ReplicaCounts,
    rate: float,
    number: int,
    measured: slice,
    later_s: float,
) -> MeshPrediction:
    """Simulate a ``number`` of answers, of which the latencies of those ``measured`` count. Others
    come for about ``later_s`` after these."""
    rng = Random(setting.seed)  # noqa: S311 - a plan must repeat
    arrivals_s = poisson_s(number, rate, rng)
    goals = [_goal(setting, strategy, setting.output.draw(rng)) for _ in range(number)]
    model = setting.model(strategy, counts.verifiers, counts.drafters)
    mesh = SimulatedMesh(Clock(), model, setting.seed)
    answers = simulate_on(
        mesh,
        [(at_s, STRATEGIES[strategy](goal)) for at_s, goal in zip(arrivals_s, goals, strict=True)],
        setting.rates.models(setting.seed),
        prompts=[(each,) for each in range(number)],
    )
    found = _prediction(setting, strategy, mesh, answers, answers[measured], rate)
    if model.batch == 1:
        return found
    is_stable = found.e2e_ms.mean <= 1e3 * later_s and not slows(answers[measured])
    return replace(found, is_stable=is_stable)


def slows(measured: Sequence[Answered]) -> bool:
    """Return whether the last third of ``measured`` took clearly longer for each token than the
    first third, as when answers come faster than they end.

    Their times tell it sooner than their number under way, which varies with the arrivals.
    """
    third = len(measured) // 3
    first, last = (
        sum(each.duration_s for each in part) / sum(len(each.token_ids) for each in part)
        for part in (measured[:third], measured[-third:])
    )
    return last > _CLEARLY * first


def _prediction(
    setting: PlanSetting,
    strategy: str,
    mesh: SimulatedMesh,
    answers: Sequence[Answered],
    measured: Sequence[Answered],
    rate: float,
) -> MeshPrediction:
    model, cells, total_rate = mesh.model, setting.cells, rate * setting.cells
    num_drafters = len(mesh.drafters)
    verify_s = sum(server.busy_s for server in mesh.verifiers) / len(answers)
    draft_s = sum(server.busy_s for server in mesh.drafters) / len(answers)
    busy = (
        verify_s * rate / model.num_verifiers,
        draft_s * rate / num_drafters if num_drafters else 0.0,
    )
    verifications = total_rate * sum(each.num_verify_calls for each in answers) / len(answers)
    further = total_rate * sum(each.num_further_tokens for each in answers) / len(answers)
    cores = setting.orchestrator_cores(strategy, verifications - further, further)
    return MeshPrediction(
        strategy=strategy,
        counts=ReplicaCounts(model.num_verifiers, num_drafters),
        cells=cells,
        ttft_ms=Times.of([each.first_token_s for each in measured]),
        tpot_ms=Times.of([_tpot_s(each) for each in measured if len(each.token_ids) > 1]),
        e2e_ms=Times.of([each.duration_s for each in measured]),
        attained=sum(_meets(each, setting.objectives) for each in measured) / len(measured),
        verifier_utilisation=_utilisation(busy[0], model.batch),
        drafter_utilisation=_utilisation(busy[1], model.batch),
        is_stable=max(busy) <= MOST_BUSY,
        verify_s=verify_s,
        draft_s=draft_s,
        verifications_per_s=round(verifications, 1),
        further_tokens_per_s=round(further, 1),
        tokens_per_s=round(total_rate * setting.mean_output, 1),
        orchestrator_cores=round(cores, 3),
    )


def _utilisation(busy: float, batch: int) -> float:
    """Round it, capped at 1 if answers share forwards: then no replica is more than one forward
    behind."""
    return round(busy if batch == 1 else min(busy, 1.0), 4)


def _goal(setting: PlanSetting, strategy: str, num_tokens: int) -> Goal:
    options = setting.options.get(strategy, StrategyOptions())
    return Goal(num_tokens, **asdict(options))


def _tpot_s(answer: Answered) -> float:
    return (answer.duration_s - answer.first_token_s) / (len(answer.token_ids) - 1)


def _meets(answer: Answered, objectives: Objectives) -> bool:
    tpot_s = _tpot_s(answer) if len(answer.token_ids) > 1 else None
    times = (
        (objectives.ttft_s, answer.first_token_s),
        (objectives.tpot_s, tpot_s),
        (objectives.e2e_s, answer.duration_s),
    )
    return all(bound is None or took is None or took <= bound for bound, took in times)
