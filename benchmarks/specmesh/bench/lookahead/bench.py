"""The course of ``specmesh bench lookahead``: one mesh, all lookaheads in turn, judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from specmesh.bench.lookahead.report import (
    contest_json,
    contest_table,
    describe_difference,
    describe_outcome,
)
from specmesh.bench.lookahead.summary import Contest, contest
from specmesh.bench.strategies.measure import AUTOREGRESSIVE, SPECULATIVE, Experiment, Speculation
from specmesh.bench.strategies.report import describe_setting, make_runs, setting_json
from specmesh.cli.local.cores import pinned_to
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.models import RealModels
from specmesh.cli.runner import FAILED
from specmesh.client import Client


def speculations(lookaheads: Sequence[int]) -> tuple[Speculation, ...]:
    """The yardstick, each fixed lookahead, and the one that adapts."""
    fixed = (Speculation(SPECULATIVE, lookahead) for lookahead in lookaheads)
    return (Speculation(AUTOREGRESSIVE), *fixed, Speculation(SPECULATIVE))


class Bench:
    """One run of it. ``summary`` is there once everything has been measured.

    The experiment's speculations are those of ``speculations``.
    """

    def __init__(
        self,
        *,
        options: MeshOptions,
        models: RealModels,
        experiment: Experiment,
        directory: Path,
        console: Console,
    ) -> None:
        self.summary: dict[str, Any] | None = None
        self._options = options
        self._models = models
        self._experiment = experiment
        self._console = console
        self._mesh = LocalMesh(options, directory, self._say)

    def kill(self) -> None:
        """End the mesh at once."""
        self._mesh.kill()

    async def run(self) -> int:
        """Everything; returns the exit status. Raises StartError, SpecmeshError."""
        placement = self._mesh.placement
        # Or the client would compete with the target now and then.
        with pinned_to(placement.rest):
            async with self._mesh, Client(self._mesh.address) as client:
                self._say(describe_setting(self._options, self._models, placement))
                runs = await make_runs(self._experiment, client, self._console)
        lookaheads = [each.lookahead for each in self._experiment.speculations if each.lookahead]
        contests = [contest(runs, lookaheads, each) for each in self._experiment.temperatures]
        setting = setting_json(self._options, self._models, placement, self._experiment)
        del setting["speculation"]  # by strategy, and here is but one
        self.summary = {
            **setting,
            "identical": all(each.identical for each in contests),
            "temperatures": [contest_json(each) for each in contests],
        }
        for each in contests:
            self._console.print(contest_table(each))
            self._say(describe_outcome(each))
        return self._judge(contests)

    def _judge(self, contests: Sequence[Contest]) -> int:
        differing = [each for each in contests if not each.identical]
        for each in differing:
            self._say(describe_difference(each))
        return FAILED if differing else 0

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
