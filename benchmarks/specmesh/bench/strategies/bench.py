"""The course of ``specmesh bench strategies``: measure, trace, shut down, judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from specmesh.bench.strategies.measure import (
    BRANCH_PREDICTION,
    DSI,
    SPECULATIVE,
    Experiment,
    Speculation,
)
from specmesh.bench.strategies.report import (
    comparison_json,
    describe_difference,
    describe_setting,
    describe_stops,
    run_and_show,
    setting_json,
)
from specmesh.bench.strategies.summary import Comparison
from specmesh.bench.strategies.traced import TracedMesh
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.models import RealModels
from specmesh.cli.runner import FAILED
from specmesh.client import Client, GenerationStream
from specmesh.traces.cancellation import cancellations, stop_times
from specmesh.traces.speculation import accepted_counts, latencies

_NUM_TRACED_PROMPTS = 5
_TRACED_LOOKAHEAD = 4
"""Of the speculative answers from which latencies and accepted counts are read."""


class Bench:
    """One run of it. ``summary`` is there once everything has been measured."""

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
        self._mesh = TracedMesh(options, directory, self._say)

    def kill(self) -> None:
        """End the mesh at once."""
        self._mesh.kill()

    async def run(self) -> int:
        """Everything; returns the exit status. Raises StartError, SpecmeshError."""
        async with self._mesh.running() as client:
            self._say(describe_setting(self._options, self._models, self._mesh.placement))
            comparisons = await run_and_show(self._experiment, client, self._console)
            await self._mesh.trace(self._answers_to_trace(client))
        self.summary = {
            **setting_json(self._options, self._models, self._mesh.placement, self._experiment),
            "identical": all(each.identical for each in comparisons),
            "strategies": comparison_json(comparisons[0])["strategies"],
            "temperatures": [comparison_json(each) for each in comparisons],
            **self._read_traces(),
        }
        return self._judge(comparisons)

    def _answers_to_trace(self, client: Client) -> Iterator[GenerationStream]:
        """Some with cancellations, and some from which latencies can be read undisturbed."""
        chosen = [
            each
            for each in self._experiment.speculations
            if each.strategy in {DSI, BRANCH_PREDICTION}
        ]
        chosen.append(Speculation(SPECULATIVE, lookahead=_TRACED_LOOKAHEAD))
        for prompt in self._experiment.prompts[:_NUM_TRACED_PROMPTS]:
            for each in chosen:
                yield self._experiment.ask(client, prompt, each)

    def _read_traces(self) -> dict[str, Any]:
        traces = self._mesh.traces()
        lockstep = [span for trace in traces.get(SPECULATIVE, ()) for span in trace]
        times = latencies(lockstep)
        stops = stop_times(cancellations(chain(*(chain(*each) for each in traces.values()))))
        if stops is not None:
            self._say(describe_stops(stops, times))
        return {
            "cancellation": None if stops is None else asdict(stops),
            "latencies": None if times is None else asdict(times),
            "accepted_counts": accepted_counts(lockstep, _TRACED_LOOKAHEAD),
        }

    def _judge(self, comparisons: Sequence[Comparison]) -> int:
        differing = [each for each in comparisons if not each.identical]
        for each in differing:
            self._say(describe_difference(each))
        return FAILED if differing else 0

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
