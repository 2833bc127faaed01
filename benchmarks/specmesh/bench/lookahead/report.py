"""How a contest looks, in 80 columns and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from specmesh.bench.lookahead.summary import Contest, Figures
from specmesh.bench.strategies.report import make_table


def contest_table(contest: Contest) -> Table:
    """One temperature: speed, and tokens drafted and accepted in a round."""
    table = make_table(f"Temperature {contest.temperature:g}")
    table.add_column("lookahead")
    headings = ("tokens/s", "median prompt", "speed-up", "drafted", "accepted")
    for heading in headings:
        table.add_column(heading, justify="right")
    table.add_column("same")
    for figures in (*contest.fixed, contest.adaptive):
        table.add_row(*_cells(figures))
    return table


def describe_outcome(contest: Contest) -> str:
    """Who won, in words."""
    return (
        f"Adaptive lookahead is {contest.ratio:.3f} times as fast as the best fixed one, "
        f"{contest.best_fixed.lookahead}."
    )


def describe_difference(contest: Contest) -> str:
    """Which prompts have other texts; empty if none has."""
    lines = [
        f"DIFFERENT TEXT at temperature {contest.temperature:g} with lookahead "
        f"{_name(figures)}: prompt " + ", ".join(str(n + 1) for n in figures.differing_prompts)
        for figures in (*contest.fixed, contest.adaptive)
        if figures.differing_prompts
    ]
    return "\n".join(lines)


def contest_json(contest: Contest) -> dict[str, Any]:
    """One temperature, for machines."""
    return {
        "temperature": contest.temperature,
        "identical": contest.identical,
        "autoregressive_tokens_per_s": contest.autoregressive_tokens_per_s,
        "fixed": [asdict(figures) for figures in contest.fixed],
        "adaptive": asdict(contest.adaptive),
        "best_fixed": contest.best_fixed.lookahead,
        "ratio": contest.ratio,
    }


def _cells(figures: Figures) -> tuple[str, ...]:
    return (
        _name(figures),
        f"[bold]{figures.tokens_per_s:.1f}",
        f"{figures.median_tokens_per_s:.1f}",
        f"{figures.speedup:.2f}x",
        f"{figures.drafted_per_verify:.2f}",
        f"{figures.accepted_per_verify:.2f}",
        "[bold red]NO" if figures.differing_prompts else "[green]yes",
    )


def _name(figures: Figures) -> str:
    return "adaptive" if figures.lookahead is None else str(figures.lookahead)
