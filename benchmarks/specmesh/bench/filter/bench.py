"""The steps of ``specmesh bench filter``: measure, trace, shut down, judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specmesh.bench.filter.fidelity import judge_all
from specmesh.bench.filter.picture import draw, write_csv
from specmesh.bench.filter.report import as_json, show
from specmesh.bench.filter.sessions import Crowd, Round, sum_up
from specmesh.bench.filter.summary import SHARE, answers_of, summarise, threshold_for
from specmesh.bench.filter.sweep import FilterSetting, sweep
from specmesh.bench.filter.thresholds import settings_at
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.mesh import MeshOptions
from specmesh.client import AsyncClient
from specmesh.tools.kit.bench import Bench, Surroundings
from specmesh.tools.kit.experiment import FILTER, Run
from specmesh.tools.kit.setting import describe_setting

CROWD_SCORER = "calibrated"
CROWD_SHARES = (SHARE, 0.6, 0.8)
"""Approximate shares of the tokens that are kept while many sessions are timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterPlan:
    """The plan: ``prompts`` with every threshold, then ``num_sessions`` concurrently (0 for none);
    and the files to write."""

    prompts: Sequence[str]
    num_tokens: int
    num_sessions: int
    num_rounds: int
    crowd_prompts: Sequence[str]
    figure: Path | None
    csv: Path | None


def crowd_settings(runs: Sequence[Run]) -> list[FilterSetting]:
    """Return a setting for each of ``CROWD_SHARES``; fewer if some have the same threshold."""
    thresholds = (threshold_for(runs, CROWD_SCORER, share) for share in CROWD_SHARES)
    return [FilterSetting(CROWD_SCORER, threshold) for threshold in dict.fromkeys(thresholds)]


class FilterBench(Bench):
    """One run of the benchmark."""

    def __init__(self, plan: FilterPlan, options: MeshOptions, surroundings: Surroundings) -> None:
        super().__init__(options, surroundings)
        self._plan = plan

    async def run(self) -> tuple[int, Mapping[str, Any]]:
        """Run everything; return the exit status and the results."""
        plan = self._plan
        async with self.mesh.running() as client:
            self.say(describe_setting(self))
            settings = await settings_at(self.mesh.addresses["confidence-0"])
            experiment = sweep(plan.prompts, settings, plan.num_tokens)
            runs = await experiment.runs(client, self.console)
            crowded = await self._crowd(client, crowd_settings(runs)) if plan.num_sessions else None
        sessions = None
        if crowded is not None:  # The mesh sends the last spans as it ends.
            traces = self.mesh.traces().get(FILTER, ())
            sessions = sum_up(*crowded, [each.spans for each in traces])
        self.say("Judging the texts")
        answers = [answers_of(runs, setting) for setting in settings]
        judged = await judge_all(self.models, plan.prompts, answers, plan.num_tokens)
        summary = summarise(runs, settings, judged)
        show(summary, sessions, self.console)
        if plan.figure is not None:
            draw(summary.points, plan.figure)
        if plan.csv is not None:
            write_csv(summary.points, plan.csv)
        return 0 if summary.end_points_exact else ExitStatus.FAILED, as_json(summary, sessions)

    async def _crowd(
        self, client: AsyncClient, settings: Sequence[FilterSetting]
    ) -> tuple[Crowd, Sequence[Round]]:
        crowd = Crowd(
            experiment=sweep(self._plan.crowd_prompts, settings, self._plan.num_tokens),
            count=self._plan.num_sessions,
            settings=settings,
            num_rounds=self._plan.num_rounds,
        )
        self.say(f"{crowd.count} concurrent sessions")
        rounds = [each async for each in crowd.measure(client, self.mesh.pids)]
        async with self.mesh.tracing():
            for setting in settings:
                await crowd.answers(client, setting)
        return crowd, rounds
