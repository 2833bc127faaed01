"""How the demo looks, in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from specmesh.cli.demo.summary import Comparison, Figures
from specmesh.traces.breakdown import Breakdown, NodeTime


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Strategies by temperature."""
    table = _table("With and without speculation")
    table.add_column("temp", justify="right")
    table.add_column("strategy", no_wrap=True)
    for heading in ("tokens/s", "speedup", "accept-\nance", "verify\ncalls", "tokens/\nverify"):
        table.add_column(heading, justify="right")
    table.add_column("same\ntext")
    for comparison in comparisons:
        plain, speculative = comparison.autoregressive, comparison.speculative
        table.add_row(f"{comparison.temperature:g}", *_cells(plain, ""), "")
        same = "[red]NO" if comparison.differing_prompts else "[green]yes"
        table.add_row("", *_cells(speculative, f"[bold]{comparison.speedup:.2f}x"), same)
    return table


def _cells(figures: Figures, speedup: str) -> tuple[str, ...]:
    return (
        figures.strategy,
        f"{figures.tokens_per_s:.1f}",
        speedup,
        "" if figures.acceptance is None else f"{figures.acceptance:.0%}",
        str(figures.num_verify_calls),
        f"{figures.tokens_per_verify:.2f}",
    )


def breakdown_table(result: Breakdown) -> Table:
    """Nodes by where their time went."""
    table = _table(f"Where the {result.wall_ms:.0f} ms of one speculative answer went")
    table.caption = "In ms. Share: of what the answer waited for, hops included."
    table.add_column("node")
    for heading in ("calls", "busy", "forward", "queue", "other", "hops", "share"):
        table.add_column(heading, justify="right")
    for node in result.nodes:
        table.add_row(
            _name(node),
            str(node.num_calls) if node.num_calls else "",
            _ms(node.busy_ms),
            _ms(node.forward_ms),
            _ms(node.queue_ms),
            _ms(node.other_ms),
            _ms(node.hop_ms),
            f"{result.share(node):.0%}",
        )
    return table


def breakdown_json(result: Breakdown) -> dict[str, Any]:
    """The same for machines."""
    nodes = [{**asdict(node), "share": result.share(node)} for node in result.nodes]
    return {"wall_ms": result.wall_ms, "nodes": nodes}


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """One temperature, for machines."""
    return {
        "temperature": comparison.temperature,
        "identical": not comparison.differing_prompts,
        "speedup": comparison.speedup,
        "strategies": {
            figures.strategy: asdict(figures)
            for figures in (comparison.autoregressive, comparison.speculative)
        },
    }


def _table(title: str) -> Table:
    return Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title=f"\n{title}",
        title_justify="left",
        caption_justify="left",
    )


def _name(node: NodeTime) -> str:
    return node.node.instance or node.node.service


def _ms(value: float) -> str:
    return f"{value:.1f}" if value else ""
