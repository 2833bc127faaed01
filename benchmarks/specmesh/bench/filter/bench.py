"""The course of ``specmesh bench filter``: measure, trace, shut down, judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from specmesh.bench.filter.fidelity import judge_all
from specmesh.bench.filter.sessions import Crowd, SessionFigures, sum_up
from specmesh.bench.filter.summary import SHARE, Summary, answers_of, summarise, threshold_for
from specmesh.bench.filter.sweep import FILTER, Run, Setting, Sweep
from specmesh.bench.filter.thresholds import settings_at
from specmesh.bench.strategies.traced import TracedMesh
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.models import RealModels
from specmesh.cli.runner import FAILED
from specmesh.client import Client

CROWD_SCORER = "calibrated"
CROWD_SHARES = (SHARE, 0.6, 0.8)
"""Of the tokens, about those that are kept while many sessions are timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the user asked for: ``prompts`` by threshold, ``num_sessions`` at once (0: none)."""

    prompts: Sequence[str]
    num_tokens: int
    num_sessions: int
    num_rounds: int
    crowd_prompts: tuple[str, ...]


def crowd_settings(runs: Sequence[Run]) -> list[Setting]:
    """One for each of ``CROWD_SHARES``; fewer where the runs don't tell them apart."""
    thresholds = (threshold_for(runs, CROWD_SCORER, share) for share in CROWD_SHARES)
    return [Setting(CROWD_SCORER, threshold) for threshold in dict.fromkeys(thresholds)]


class Bench:
    """One run of it. ``summary`` and ``sessions`` are there once it is through."""

    def __init__(
        self,
        *,
        options: MeshOptions,
        models: RealModels,
        plan: Plan,
        directory: Path,
        console: Console,
    ) -> None:
        self.summary: Summary | None = None
        self.sessions: SessionFigures | None = None
        self._models = models
        self._plan = plan
        self._console = console
        self._mesh = TracedMesh(options, directory, self._say)

    def kill(self) -> None:
        """End the mesh at once."""
        self._mesh.kill()

    async def run(self) -> int:
        """Everything; returns the exit status. Raises StartError, SpecmeshError."""
        num_sessions = self._plan.num_sessions
        async with self._mesh.running() as client:
            settings = await settings_at(self._mesh.addresses["confidence-0"])
            sweep = Sweep(self._plan.prompts, self._plan.num_tokens, settings)
            runs = await self._sweep(client, sweep)
            if num_sessions:
                crowd = Crowd(
                    prompts=self._plan.crowd_prompts,
                    count=num_sessions,
                    num_tokens=sweep.num_tokens,
                    settings=crowd_settings(runs),
                    num_rounds=self._plan.num_rounds,
                )
                self._say(f"{num_sessions} sessions at once")
                rounds = [each async for each in crowd.measure(client, self._mesh.pids)]
                async with self._mesh.tracing():
                    for setting in crowd.settings:
                        await crowd.answers(client, setting)
        if num_sessions:  # the last spans come as the mesh ends
            self.sessions = sum_up(crowd, rounds, self._mesh.traces().get(FILTER, ()))
        self._say("Judging the texts")
        answers = [answers_of(runs, setting) for setting in sweep.settings]
        judged = await judge_all(self._models, sweep.prompts, answers, sweep.num_tokens)
        self.summary = summarise(runs, sweep.settings, judged)
        return 0 if self.summary.end_points_exact else FAILED

    async def _sweep(self, client: Client, sweep: Sweep) -> list[Run]:
        runs = []
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        # Drawn between the runs only: drawing takes the core that the client needs.
        with Progress(*columns, console=self._console, auto_refresh=False) as progress:
            task = progress.add_task("Measuring", total=sweep.num_runs)
            async for run in sweep.measure(client):
                runs.append(run)
                progress.update(task, advance=1, refresh=True)
        return runs

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
