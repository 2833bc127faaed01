"""The breakdown of an answer's time, as text in 80 columns and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from specmesh.tools.kit.tables import make_table
from specmesh.traces.analysis.breakdown import Breakdown, NodeTime


def breakdown_table(result: Breakdown, strategy: str) -> Table:
    """Return a table with a row for each node and where its time went."""
    title = f"Where the {result.wall_ms:.0f} ms of one answer went: {strategy}"
    headings = ("node", "calls", "busy", "forward", "queue", "other", "hops", "share")
    table = make_table(title, *headings)
    table.caption = "In ms. Share: of what the answer waited for, hops included."
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
    """Return the breakdown as a JSON object."""
    nodes = [{**asdict(node), "share": result.share(node)} for node in result.nodes]
    return {"wall_ms": result.wall_ms, "nodes": nodes}


def _name(node: NodeTime) -> str:
    return node.node.instance or node.node.service


def _ms(value: float) -> str:
    return f"{value:.1f}" if value else ""
