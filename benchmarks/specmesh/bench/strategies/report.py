"""How a comparison looks, in 80 columns and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from specmesh.bench.strategies.measure import SPECULATIVE, Experiment, Run
from specmesh.bench.strategies.repeats import NUM_TOKENS
from specmesh.bench.strategies.summary import Comparison, Figures, compare
from specmesh.cli.local.cores import Placement
from specmesh.cli.local.mesh import MeshOptions
from specmesh.cli.local.models import RealModels
from specmesh.client import Client
from specmesh.traces.cancellation import StopTimes
from specmesh.traces.speculation import Latencies

_KEY = f"""
accept: share of the verified draft tokens. For one token of output: calls of
the target, tokens drafted, of these wasted, places the target was asked about.
same: whether every text is that of the first line.
A token repeats if it lies in a run of {NUM_TOKENS} tokens that its answer has said
before. Small models go in loops at temperature 0, and loops are easy to draft.
"""


async def make_runs(experiment: Experiment, client: Client, console: Console) -> list[Run]:
    """Make the runs of an experiment, with a bar that tells how far it is."""
    runs: list[Run] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    # Drawn between the runs only: drawing takes the core that the client needs.
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        task = progress.add_task("Measuring", total=experiment.num_runs)
        async for run in experiment.measure(client):
            runs.append(run)
            progress.update(task, advance=1, refresh=True)
    return runs


async def run_and_show(
    experiment: Experiment, client: Client, console: Console
) -> list[Comparison]:
    """Make the runs of an experiment; print and return what they say, by temperature."""
    runs = await make_runs(experiment, client, console)
    names = [each.strategy for each in experiment.speculations]
    comparisons = [compare(runs, names, each) for each in experiment.temperatures]
    for comparison in comparisons:
        console.print(comparison_table(comparison))
    console.print(_KEY, style="dim italic", highlight=False)
    return comparisons


def comparison_table(comparison: Comparison) -> Table:
    """One temperature: how repetitive its text is, speed, and what a token of output took."""
    repeated = f"{comparison.repeated_share:.0%} of the target's own tokens repeat"
    table = make_table(f"Temperature {comparison.temperature:g}: {repeated}")
    table.add_column("strategy", no_wrap=True)
    headings = ("tokens/s", "ratio", "accept", "calls", "drafted", "wasted", "asked")
    for heading in headings:
        table.add_column(heading, justify="right")
    table.add_column("same")
    for figures in comparison.strategies.values():
        table.add_row(*_cells(figures))
    return table


def _cells(figures: Figures) -> tuple[str, ...]:
    counts = (
        figures.num_verify_calls,
        figures.num_drafted_tokens,
        figures.num_wasted_tokens,
        figures.num_target_tokens,
    )
    return (
        figures.strategy,
        f"{figures.tokens_per_s:.1f}",
        f"[bold]{figures.ratio:.2f}x",
        "" if figures.acceptance is None else f"{figures.acceptance:.0%}",
        *(f"{count / figures.num_output_tokens:.2f}" if count else "" for count in counts),
        "[green]yes" if figures.identical else "[bold red]NO",
    )


def describe_stops(stops: StopTimes, times: Latencies | None) -> str:
    """How soon rejected work stops, in words."""
    step = "" if times is None else f" (one drafter step: {times.drafter_step_ms:.1f} ms)"
    return (
        f"From a rejection until the last cancelled call has left its server, "
        f"{stops.count} times:\n"
        f"p50 {stops.p50_ms:.1f} ms, p99 {stops.p99_ms:.1f} ms{step}"
    )


def describe_speedup(comparison: Comparison) -> str:
    """How much faster ``speculative`` is, and whichever strategy is fastest."""
    figures = comparison.strategies
    best = max(figures.values(), key=lambda each: each.ratio)
    return (
        f"Speedup at temperature {comparison.temperature:g}: {figures[SPECULATIVE].ratio:.2f} "
        f"{SPECULATIVE}, at best {best.ratio:.2f} {best.strategy}"
    )


def describe_difference(comparison: Comparison) -> str:
    """Which prompts have other texts, and where; empty if none has."""
    lines = [
        f"DIFFERENT TEXT at temperature {comparison.temperature:g} with {figures.strategy}: prompt "
        + ", ".join(str(number + 1) for number in figures.differing_prompts)
        for figures in comparison.strategies.values()
        if not figures.identical
    ]
    return "\n".join(lines)


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """One temperature, for machines."""
    return {
        "temperature": comparison.temperature,
        "repeated_share": comparison.repeated_share,
        "identical": comparison.identical,
        "strategies": {
            name: _figures_json(figures) for name, figures in comparison.strategies.items()
        },
    }


def _figures_json(figures: Figures) -> dict[str, Any]:
    values = {name.removeprefix("num_"): value for name, value in asdict(figures).items()}
    return {
        **values,
        "tokens_per_verify": figures.tokens_per_verify,
        "identical": figures.identical,
    }


def setting_json(
    options: MeshOptions, models: RealModels, placement: Placement, experiment: Experiment
) -> dict[str, Any]:
    """What was measured, and on what, for machines."""
    return {
        "prompts": len(experiment.prompts),
        "tokens": experiment.num_tokens,
        "seed": experiment.seed,
        "speculation": {each.strategy: asdict(each) for each in experiment.speculations},
        "verifiers": options.num_verifiers,
        "threads": options.threads,
        "cores": {
            "verifiers": [sorted(cores) for cores in placement.verifiers],
            "drafter": sorted(placement.drafter),
            "rest": sorted(placement.rest),
        },
        "models": {
            "target": Path(models.target).name,
            "drafters": [Path(name).name for name in models.drafter_names],
        },
    }


def describe_setting(options: MeshOptions, models: RealModels, placement: Placement) -> str:
    """Models, replicas and where they run."""
    verifiers = frozenset[int]().union(*placement.verifiers)
    drafters = ", ".join(Path(name).name for name in models.drafter_names)
    return (
        f"Target {Path(models.target).name} x {options.num_verifiers} on {_cores(verifiers)}, "
        f"drafter {drafters} on {_cores(placement.drafter)};\n"
        f"{options.threads} thread(s) each"
    )


def make_table(title: str) -> Table:
    """An empty table in the style of them all."""
    return Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        title=f"\n{title}",
        title_justify="left",
        caption_justify="left",
    )


def _cores(cores: frozenset[int]) -> str:
    return f"core {', '.join(map(str, sorted(cores)))}" if cores else "any core"
