"""The steps of the demo: start, show, compare, trace, shut down, explain, judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict
from typing import Any

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.silence import lines
from specmesh.client import AsyncClient
from specmesh.tools.demo.comparison import Comparison
from specmesh.tools.demo.comparison_report import (
    comparison_json,
    describe_difference,
    describe_speedup,
    describe_stops,
    run_and_show,
)
from specmesh.tools.demo.report import breakdown_json, breakdown_table
from specmesh.tools.demo.timeline import LEGEND, timeline_picture
from specmesh.tools.kit.bench import Bench, Surroundings
from specmesh.tools.kit.experiment import (
    AUTOREGRESSIVE,
    DSI,
    SAMPLED,
    SPECULATIVE,
    Experiment,
    Speculation,
    lossless,
)
from specmesh.tools.kit.progress import duration
from specmesh.tools.kit.setting import describe_setting, setting_json
from specmesh.traces.analysis.cancellation import cancellations, stop_times
from specmesh.traces.analysis.speculation import latencies
from specmesh.traces.analysis.timeline import timeline

_NUM_PROMPT_LINES = 4
_SHOWN = (AUTOREGRESSIVE, SPECULATIVE)
"""Strategies whose answers are printed as they stream."""
_SHOWN_TEMPERATURE = SAMPLED
"""A small model soon repeats one line at temperature 0."""
_PICTURED = {
    SPECULATIVE: "drafter and target take turns",
    DSI: "the drafter goes on while the target verifies",
}
"""Strategies whose answers to the first prompt are traced, with the titles of their pictures."""
_PICTURED_MS = 100.0


def _tracing_line(elapsed_s: float) -> str:
    return f"tracing {len(_PICTURED)} answers and ending the mesh, for {duration(elapsed_s)}"


class Demo(Bench):
    """One run of the demo."""

    def __init__(
        self,
        prompts: Sequence[str],
        num_tokens: int,
        options: MeshOptions,
        surroundings: Surroundings,
    ) -> None:
        super().__init__(options, surroundings)
        self._is_mid_line = False
        self._first = prompts[0]
        self._experiment = Experiment(
            prompts=prompts,
            speculations=[Speculation(name) for name in lossless(self.models)],
            num_tokens=num_tokens,
        )

    async def run(self) -> tuple[int, Mapping[str, Any]]:
        """Run everything; return the exit status and the results."""
        self.say(f"Starting a mesh; logs and traces are in {self.directory}")
        async with AsyncExitStack() as stack:
            # Entered first and left last, so that progress lines also cover the end of the mesh.
            last = stack.enter_context(ExitStack())
            client = await stack.enter_async_context(self.mesh.running())
            self.say(describe_setting(self))
            await self._show(client)
            comparisons = await run_and_show(self._experiment, client, self.console)
            last.enter_context(lines(_tracing_line, self.console))
            await self.mesh.trace(
                self._experiment.ask(client, self._first, Speculation(name), _SHOWN_TEMPERATURE)
                for name in _PICTURED
            )
        found = {**self._sum_up(comparisons), **self._explain()}
        return self._judge(comparisons), found

    def say(self, line: str) -> None:
        """Print a line verbatim, and not behind half a line of an answer that streams."""
        if self._is_mid_line:
            self._write("\n")
        super().say(line)

    async def _show(self, client: AsyncClient) -> None:
        """Print answers to the first prompt as they stream."""
        self.say("The end of the first prompt, and the target's continuation:")
        lines = self._first.splitlines(keepends=True)[-_NUM_PROMPT_LINES:]
        for name in _SHOWN:
            self.console.rule(
                f"{name}, temperature {_SHOWN_TEMPERATURE:g}, seed {self._experiment.seed}"
            )
            self._write("".join(lines), style="dim")
            async for chunk in self._experiment.ask(
                client, self._first, Speculation(name), _SHOWN_TEMPERATURE
            ):
                self._write(chunk.text, style="cyan")
            self._write("\n")

    def _explain(self) -> dict[str, Any]:
        """Print where the time of an answer went, and which server worked when."""
        traces = self.mesh.traces()
        lockstep, overlapped = traces.get(SPECULATIVE), traces.get(DSI)
        if not lockstep or not overlapped:
            self.say("No breakdown and no timeline, because the traces did not arrive.")
            return {"breakdown": None, "cancellation": None}
        where = lockstep[0].breakdown()
        self.console.print(breakdown_table(where, SPECULATIVE))
        for strategy, what in _PICTURED.items():
            stretch = timeline(traces[strategy][0].spans).busiest(_PICTURED_MS)
            title = f"{strategy}: {what} ({_PICTURED_MS:g} ms of one answer)"
            self.console.print(timeline_picture(stretch, title))
        self.console.print(LEGEND)
        stops = stop_times(cancellations(overlapped[0].spans))
        if stops is not None:
            self.say("\n" + describe_stops(stops, latencies(lockstep[0].spans)))
        return {
            "breakdown": breakdown_json(where),
            "cancellation": None if stops is None else asdict(stops),
        }

    def _judge(self, comparisons: Sequence[Comparison]) -> int:
        differing = [each for each in comparisons if not each.identical]
        for each in differing:
            self.say(describe_difference(each))
        if not differing:
            self.say(
                f"Same text for all {len(self._experiment.prompts)} prompts with every strategy "
                "at both temperatures."
            )
            for each in comparisons:
                self.say(describe_speedup(each))
        return ExitStatus.FAILED if differing else 0

    def _sum_up(self, comparisons: Sequence[Comparison]) -> dict[str, Any]:
        greedy = comparisons[0].strategies
        return {
            "identical": all(each.identical for each in comparisons),
            "speedup": greedy[SPECULATIVE].ratio,
            "acceptance": greedy[SPECULATIVE].acceptance,
            "tokens_per_s": {name: figures.tokens_per_s for name, figures in greedy.items()},
            **setting_json(self, self._experiment),
            "lookahead": self.options.lookahead,
            "traced_temperature": _SHOWN_TEMPERATURE,
            "temperatures": [comparison_json(each) for each in comparisons],
        }

    def _write(self, text: str, style: str = "") -> None:
        self._is_mid_line = not text.endswith("\n")
        self.console.print(text, style=style, end="", markup=False, highlight=False, soft_wrap=True)
