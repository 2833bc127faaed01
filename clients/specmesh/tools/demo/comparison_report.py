"""The report on a comparison, as text in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from specmesh.client import AsyncClient
from specmesh.tools.demo.comparison import Comparison, StrategyFigures, compare
from specmesh.tools.demo.repeats import NUM_TOKENS
from specmesh.tools.kit.experiment import (
    AUTOREGRESSIVE,
    SPECULATIVE,
    Experiment,
    Run,
    Speculation,
)
from specmesh.tools.kit.progress import progress
from specmesh.tools.kit.tables import make_table, same
from specmesh.traces.analysis.cancellation import StopTimes
from specmesh.traces.analysis.speculation import TracedLatencies

_MOST_VARIED = 1.2
"""The factor by which the target alone may vary on a machine that has nothing else to do."""
_KEY = f"""
tokens/s and ratio are medians over the prompts; the ratio is to autoregressive
decoding of the same prompt, so it is not that of the two medians.
accept: accepted share of the verified draft tokens. Per output token: calls of
the target, tokens drafted, tokens wasted, positions it computed (asked).
same: whether every text equals that of the first line.
A token repeats if it lies in a run of {NUM_TOKENS} tokens that occurred before in
its answer. Small models loop at temperature 0, and loops are easy to draft.
"""


async def run_and_show(
    experiment: Experiment, client: AsyncClient, console: Console
) -> list[Comparison]:
    """Make the runs of an experiment; print and return a comparison for each temperature."""
    runs, alone = await _run(experiment, client, console)
    names = [each.strategy for each in experiment.speculations]
    comparisons = [compare(runs, names, each) for each in experiment.temperatures]
    for comparison in comparisons:
        console.print(comparison_table(comparison))
    console.print(_KEY, style="dim italic", highlight=False)
    if noise := describe_noise([run.tokens_per_s for run in alone]):
        console.print(noise, style="bold", highlight=False)
    return comparisons


async def _run(
    experiment: Experiment, client: AsyncClient, console: Console
) -> tuple[list[Run], list[Run]]:
    """Make the runs; return them, and those of the target alone before and after each temperature,
    all of the first prompt, which tell what else the machine did."""
    runs: list[Run] = []
    alone: list[Run] = []

    async def time_alone(temperature: float) -> None:
        alone.append(await experiment.timed(client, 0, Speculation(AUTOREGRESSIVE), temperature))

    with progress("answers", experiment.num_runs, console) as advance:
        await experiment.warm_up(client)
        for temperature in experiment.temperatures:
            await time_alone(temperature)
            async for run in replace(experiment, temperatures=[temperature]).measure(client):
                runs.append(run)
                advance()
            await time_alone(temperature)
    return runs, alone


def describe_noise(alone_per_s: Sequence[float]) -> str:
    """Say that the tokens per second of the target alone varied too much for ratios; empty if they
    did not."""
    slowest, fastest = min(alone_per_s), max(alone_per_s)
    if fastest <= _MOST_VARIED * slowest:
        return ""
    return (
        f"The machine was busy: the target alone varied between {slowest:.0f} and {fastest:.0f} "
        "tokens/s, so these ratios mean little. Run it again on an idle machine."
    )


def comparison_table(comparison: Comparison) -> Table:
    """Return a table for one temperature: repetitiveness, speed, and the cost of an output
    token."""
    repeated = f"{comparison.repeated_share:.0%} of the target's own tokens repeat"
    title = f"Temperature {comparison.temperature:g}: {repeated}"
    costs = ("accept", "calls", "drafted", "wasted", "asked")
    table = make_table(title, "strategy", "tokens/s", "ratio", *costs)
    table.add_column("same")
    for figures in comparison.strategies.values():
        table.add_row(*_cells(figures))
    return table


def _cells(figures: StrategyFigures) -> tuple[str, ...]:
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
        same(identical=figures.identical),
    )


def describe_stops(stops: StopTimes, times: TracedLatencies | None) -> str:
    """Describe how soon rejected work stops."""
    step = "" if times is None else f" (one drafter step: {times.drafter_step_ms:.1f} ms)"
    return (
        f"From a rejection until the last cancelled call has left its server, "
        f"{stops.count} times:\n"
        f"p50 {stops.p50_ms:.1f} ms, p99 {stops.p99_ms:.1f} ms{step}"
    )


def describe_speedup(comparison: Comparison) -> str:
    """Describe the speedup of ``speculative`` and of the fastest strategy."""
    figures = comparison.strategies
    best = max(figures.values(), key=lambda each: each.ratio)
    at_best = (
        "and nothing faster than the target alone"
        if best.strategy == AUTOREGRESSIVE
        else f"at best {best.ratio:.2f} {best.strategy}"
    )
    return (
        f"Speedup at temperature {comparison.temperature:g}: {figures[SPECULATIVE].ratio:.2f} "
        f"{SPECULATIVE}, {at_best}"
    )


def describe_difference(comparison: Comparison) -> str:
    """Describe which prompts have different texts; empty if none has."""
    lines = [
        f"DIFFERENT TEXT at temperature {comparison.temperature:g} with {figures.strategy}: prompt "
        + ", ".join(str(number + 1) for number in figures.differing_prompts)
        for figures in comparison.strategies.values()
        if not figures.identical
    ]
    return "\n".join(lines)


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison at one temperature as a JSON object."""
    return {
        "temperature": comparison.temperature,
        "repeated_share": comparison.repeated_share,
        "identical": comparison.identical,
        "strategies": {
            name: _figures_json(figures) for name, figures in comparison.strategies.items()
        },
    }


def _figures_json(figures: StrategyFigures) -> dict[str, Any]:
    values = {name.removeprefix("num_"): value for name, value in asdict(figures).items()}
    return {
        **values,
        "tokens_per_verify": figures.tokens_per_verify,
        "identical": figures.identical,
    }
