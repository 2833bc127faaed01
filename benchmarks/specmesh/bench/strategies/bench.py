"""The steps of ``specmesh bench strategies``: measure, trace, shut down, judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from typing import Any

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.mesh import MeshOptions
from specmesh.client import AsyncClient, GenerationStream
from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.tools.demo.comparison_report import (
    comparison_json,
    describe_difference,
    describe_stops,
    run_and_show,
)
from specmesh.tools.kit.bench import Bench, Surroundings
from specmesh.tools.kit.experiment import (
    BRANCH_PREDICTION,
    DSI,
    SPECULATIVE,
    Experiment,
    Speculation,
)
from specmesh.tools.kit.setting import describe_setting, setting_json
from specmesh.traces.analysis.cancellation import cancellations, stop_times
from specmesh.traces.analysis.speculation import accepted_counts, latencies

_NUM_TRACED_PROMPTS = 5
_TRACED_LOOKAHEAD = 4
"""Lookahead of the speculative answers whose traces give latencies and accepted counts."""


class StrategiesBench(Bench):
    """One run of the benchmark."""

    def __init__(
        self, experiment: Experiment, options: MeshOptions, surroundings: Surroundings
    ) -> None:
        super().__init__(options, surroundings)
        self._experiment = experiment

    async def run(self) -> tuple[int, Mapping[str, Any]]:
        """Run everything; return the exit status and the results."""
        async with self.mesh.running() as client:
            self.say(describe_setting(self))
            comparisons = await run_and_show(self._experiment, client, self.console)
            await self.mesh.trace(self._answers_to_trace(client))
        traced = self._read_traces()
        for each in comparisons:
            if not each.identical:
                self.say(describe_difference(each))
        identical = all(each.identical for each in comparisons)
        return 0 if identical else ExitStatus.FAILED, {
            **setting_json(self, self._experiment),
            "identical": identical,
            "strategies": comparison_json(comparisons[0])["strategies"],
            "temperatures": list(map(comparison_json, comparisons)),
            **traced,
        }

    def _answers_to_trace(self, client: AsyncClient) -> Iterator[GenerationStream]:
        """Yield answers with cancellations, and speculative ones, whose latencies nothing
        disturbs."""
        chosen = [
            each
            for each in self._experiment.speculations
            if each.strategy in {DSI, BRANCH_PREDICTION}
        ]
        chosen.append(Speculation(SPECULATIVE, StrategyOptions(lookahead=_TRACED_LOOKAHEAD)))
        for prompt in self._experiment.prompts[:_NUM_TRACED_PROMPTS]:
            for each in chosen:
                yield self._experiment.ask(client, prompt, each)

    def _read_traces(self) -> dict[str, Any]:
        traces = self.mesh.traces()
        lockstep = [span for trace in traces.get(SPECULATIVE, ()) for span in trace.spans]
        times = latencies(lockstep)
        spans = (each.spans for each in chain(*traces.values()))
        stops = stop_times(cancellations(chain(*spans)))
        if stops is not None:
            self.say(describe_stops(stops, times))
        return {
            "cancellation": None if stops is None else asdict(stops),
            "latencies": None if times is None else asdict(times),
            "accepted_counts": accepted_counts(lockstep, _TRACED_LOOKAHEAD),
        }
