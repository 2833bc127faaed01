"""The course of the demo: start, show, compare, trace, shut down, judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from specmesh.cli.demo.measure import (
    AUTOREGRESSIVE,
    SPECULATIVE,
    STRATEGIES,
    TEMPERATURES,
    Run,
    ask,
    measure,
)
from specmesh.cli.demo.report import (
    breakdown_json,
    breakdown_table,
    comparison_json,
    comparison_table,
)
from specmesh.cli.demo.summary import Comparison, compare
from specmesh.cli.demo.traced import break_down, environment
from specmesh.cli.local.cores import Placement, pinned_to
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.runner import FAILED
from specmesh.client import Client
from specmesh.traces.breakdown import Breakdown
from specmesh.traces.receiver import TraceReceiver

_NUM_PROMPT_LINES = 4


class Course:
    """One demo. ``summary`` is there once everything has been measured."""

    def __init__(
        self,
        *,
        options: MeshOptions,
        prompts: Sequence[str],
        num_tokens: int,
        directory: Path,
        console: Console,
    ) -> None:
        self.summary: dict[str, Any] | None = None
        self._options = options
        self._prompts = prompts
        self._num_tokens = num_tokens
        self._directory = directory
        self._console = console
        self._mesh: LocalMesh | None = None

    def kill(self) -> None:
        """End the mesh at once."""
        if self._mesh is not None:
            self._mesh.kill()

    async def run(self) -> int:
        """Everything; returns the exit status. Raises StartError, SpecmeshError."""
        self._say(f"Starting a mesh; logs and trace are in {self._directory}")
        async with TraceReceiver(self._directory / "trace.jsonl") as receiver:
            options = replace(self._options, environment=environment(receiver))
            self._mesh = mesh = LocalMesh(options, self._directory, self._say)
            # Or the client would compete with the target now and then.
            with pinned_to(mesh.placement.rest):
                async with mesh, Client(mesh.address) as client:
                    self._say(_describe(options, mesh.placement))
                    await self._show(client)
                    comparisons = await self._compare(client)
                    where = await self._trace(client, receiver)
        self.summary = self._sum_up(comparisons, where, mesh.placement)
        return self._judge(comparisons)

    async def _show(self, client: Client) -> None:
        """The first prompt, answered before the reader's eyes."""
        lines = self._prompts[0].splitlines(keepends=True)[-_NUM_PROMPT_LINES:]
        for strategy in STRATEGIES:
            self._console.rule(f"{strategy}, temperature 0")
            self._write("".join(lines), style="dim")
            async for chunk in ask(client, self._prompts[0], strategy, 0.0, self._num_tokens):
                self._write(chunk.text, style="cyan")
            self._console.print()

    async def _compare(self, client: Client) -> list[Comparison]:
        num_runs = len(self._prompts) * len(STRATEGIES) * len(TEMPERATURES)
        runs: list[Run] = []
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        # Drawn between the runs only: drawing takes the core that the client needs.
        with Progress(
            *columns, console=self._console, auto_refresh=False, transient=True
        ) as progress:
            task = progress.add_task("Measuring", total=num_runs)
            async for run in measure(client, self._prompts, self._num_tokens):
                runs.append(run)
                progress.update(task, advance=1, refresh=True)
        comparisons = [compare(runs, temperature) for temperature in TEMPERATURES]
        self._console.print(comparison_table(comparisons))
        return comparisons

    async def _trace(self, client: Client, receiver: TraceReceiver) -> Breakdown | None:
        stream = ask(client, self._prompts[0], SPECULATIVE, 0.0, self._num_tokens)
        try:
            where = await break_down(stream, receiver)
        except TimeoutError:
            self._say("No breakdown: the trace did not arrive whole.")
            return None
        self._console.print(breakdown_table(where))
        return where

    def _judge(self, comparisons: Sequence[Comparison]) -> int:
        differing = [each for each in comparisons if each.differing_prompts]
        for each in differing:
            prompts = ", ".join(str(number + 1) for number in each.differing_prompts)
            self._say(f"DIFFERENT TEXT at temperature {each.temperature:g}: prompt {prompts}")
        if not differing:
            self._say(
                f"Same text for all {len(self._prompts)} prompts at both temperatures. "
                f"Greedy speedup: {comparisons[0].speedup:.2f}"
            )
        return FAILED if differing else 0

    def _sum_up(
        self, comparisons: Sequence[Comparison], where: Breakdown | None, placement: Placement
    ) -> dict[str, Any]:
        greedy = comparisons[0]
        options = self._options
        return {
            "identical": not any(each.differing_prompts for each in comparisons),
            "speedup": greedy.speedup,
            "acceptance": greedy.speculative.acceptance,
            "prompts": len(self._prompts),
            "tokens_per_s": {
                AUTOREGRESSIVE: greedy.autoregressive.tokens_per_s,
                SPECULATIVE: greedy.speculative.tokens_per_s,
            },
            "tokens": self._num_tokens,
            "lookahead": options.lookahead,
            "verifiers": options.num_verifiers,
            "threads": options.threads,
            "cores": {
                "verifiers": [sorted(cores) for cores in placement.verifiers],
                "drafter": sorted(placement.drafter),
                "rest": sorted(placement.rest),
            },
            "models": {"target": Path(options.target).name, "drafter": Path(options.drafter).name},
            "temperatures": [comparison_json(each) for each in comparisons],
            "breakdown": None if where is None else breakdown_json(where),
        }

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _write(self, text: str, style: str) -> None:
        self._console.print(
            text, style=style, end="", markup=False, highlight=False, soft_wrap=True
        )


def _describe(options: MeshOptions, placement: Placement) -> str:
    """Models, replicas and where they run."""
    verifiers = frozenset[int]().union(*placement.verifiers)
    return (
        f"Target {Path(options.target).name} x {options.num_verifiers} on {_cores(verifiers)}, "
        f"drafter {Path(options.drafter).name} on {_cores(placement.drafter)};\n"
        f"{options.threads} thread(s) each, lookahead {options.lookahead}"
    )


def _cores(cores: frozenset[int]) -> str:
    return f"core {', '.join(map(str, sorted(cores)))}" if cores else "any core"
