"""The course of the demo: start, show, compare, trace, shut down, explain, judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from specmesh.bench.demo.report import breakdown_json, breakdown_table
from specmesh.bench.demo.timeline import LEGEND, timeline_picture
from specmesh.bench.strategies.measure import (
    AUTOREGRESSIVE,
    DSI,
    SAMPLED,
    SPECULATIVE,
    STRATEGIES,
    Experiment,
    Speculation,
)
from specmesh.bench.strategies.report import (
    comparison_json,
    describe_difference,
    describe_setting,
    describe_speedup,
    describe_stops,
    run_and_show,
    setting_json,
)
from specmesh.bench.strategies.summary import Comparison
from specmesh.bench.strategies.traced import TracedMesh
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.models import RealModels
from specmesh.cli.runner import FAILED
from specmesh.client import Client
from specmesh.traces.breakdown import breakdown
from specmesh.traces.cancellation import cancellations, stop_times
from specmesh.traces.speculation import latencies
from specmesh.traces.timeline import timeline

_NUM_PROMPT_LINES = 4
_SHOWN = (AUTOREGRESSIVE, SPECULATIVE)
"""Answered before the reader's eyes."""
_SHOWN_TEMPERATURE = SAMPLED
"""At temperature 0 a small model soon says one line over and over."""
_PICTURED = {
    SPECULATIVE: "drafter and target take turns",
    DSI: "the drafter goes on while the target verifies",
}
"""The answer shown, traced."""
_PICTURED_MS = 100.0


class Course:
    """One demo. ``summary`` is there once everything has been measured."""

    def __init__(
        self,
        *,
        options: MeshOptions,
        models: RealModels,
        prompts: Sequence[str],
        num_tokens: int,
        directory: Path,
        console: Console,
    ) -> None:
        self.summary: dict[str, Any] | None = None
        self._options = options
        self._models = models
        self._experiment = Experiment(
            prompts=prompts,
            speculations=[Speculation(name) for name in STRATEGIES],
            num_tokens=num_tokens,
        )
        self._directory = directory
        self._console = console
        self._mesh = TracedMesh(options, directory, self._say)

    def kill(self) -> None:
        """End the mesh at once."""
        self._mesh.kill()

    async def run(self) -> int:
        """Everything; returns the exit status. Raises StartError, SpecmeshError."""
        self._say(f"Starting a mesh; logs and traces are in {self._directory}")
        first = self._experiment.prompts[0]
        async with self._mesh.running() as client:
            self._say(describe_setting(self._options, self._models, self._mesh.placement))
            await self._show(client)
            comparisons = await run_and_show(self._experiment, client, self._console)
            await self._mesh.trace(
                self._experiment.ask(client, first, Speculation(name), _SHOWN_TEMPERATURE)
                for name in _PICTURED
            )
        self.summary = {**self._sum_up(comparisons), **self._explain()}
        return self._judge(comparisons)

    async def _show(self, client: Client) -> None:
        """The first prompt, answered."""
        self._say("The end of the first prompt, and what the target makes of it:")
        prompt = self._experiment.prompts[0]
        lines = prompt.splitlines(keepends=True)[-_NUM_PROMPT_LINES:]
        for name in _SHOWN:
            self._console.rule(
                f"{name}, temperature {_SHOWN_TEMPERATURE:g}, seed {self._experiment.seed}"
            )
            self._write("".join(lines), style="dim")
            async for chunk in self._experiment.ask(
                client, prompt, Speculation(name), _SHOWN_TEMPERATURE
            ):
                self._write(chunk.text, style="cyan")
            self._console.print()

    def _explain(self) -> dict[str, Any]:
        """Print where the time of an answer went, and how the work was spread over it."""
        traces = self._mesh.traces()
        lockstep, overlapped = traces.get(SPECULATIVE), traces.get(DSI)
        if not lockstep or not overlapped:
            self._say("No breakdown and no timeline: the traces did not arrive.")
            return {"breakdown": None, "cancellation": None}
        where = breakdown(lockstep[0])
        self._console.print(breakdown_table(where, SPECULATIVE))
        for strategy, what in _PICTURED.items():
            stretch = timeline(traces[strategy][0]).busiest(_PICTURED_MS)
            title = f"{strategy}: {what} ({_PICTURED_MS:g} ms of one answer)"
            self._console.print(timeline_picture(stretch, title))
        self._console.print(LEGEND)
        stops = stop_times(cancellations(overlapped[0]))
        if stops is not None:
            self._say("\n" + describe_stops(stops, latencies(lockstep[0])))
        return {
            "breakdown": breakdown_json(where),
            "cancellation": None if stops is None else asdict(stops),
        }

    def _judge(self, comparisons: Sequence[Comparison]) -> int:
        differing = [each for each in comparisons if not each.identical]
        for each in differing:
            self._say(describe_difference(each))
        if not differing:
            self._say(
                f"Same text for all {len(self._experiment.prompts)} prompts with every strategy "
                "at both temperatures."
            )
            for each in comparisons:
                self._say(describe_speedup(each))
        return FAILED if differing else 0

    def _sum_up(self, comparisons: Sequence[Comparison]) -> dict[str, Any]:
        greedy = comparisons[0].strategies
        setting = setting_json(self._options, self._models, self._mesh.placement, self._experiment)
        return {
            "identical": all(each.identical for each in comparisons),
            "speedup": greedy[SPECULATIVE].ratio,
            "acceptance": greedy[SPECULATIVE].acceptance,
            "tokens_per_s": {name: figures.tokens_per_s for name, figures in greedy.items()},
            **setting,
            "lookahead": self._options.lookahead,
            "traced_temperature": _SHOWN_TEMPERATURE,
            "temperatures": [comparison_json(each) for each in comparisons],
        }

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _write(self, text: str, style: str) -> None:
        self._console.print(
            text, style=style, end="", markup=False, highlight=False, soft_wrap=True
        )
