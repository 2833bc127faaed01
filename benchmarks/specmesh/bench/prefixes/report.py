"""The report of both sides, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console

from specmesh.bench.prefixes.chats import ChatLoad
from specmesh.bench.prefixes.measure import FirstTokenLatency, Side
from specmesh.bench.prefixes.mesh import Shape
from specmesh.cli.local.models import Models, RealModels
from specmesh.load.results.machine import machine, versions
from specmesh.tools.kit.tables import table_of


def show(console: Console, sides: Mapping[str, Side]) -> None:
    """Print a table with a row for each side."""
    table = table_of(
        "Turns after the first",
        ((name, side, FirstTokenLatency.of(side.later)) for name, side in sides.items()),
        (
            ("directory", lambda row: row[0]),
            ("hit rate", lambda row: f"{row[1].hit_rate:.1%}"),
            ("TTFT p50 ms", lambda row: f"{row[2].p50:.1f}"),
            ("p95 ms", lambda row: f"{row[2].p95:.1f}"),
            ("tokens computed per answer", lambda row: f"{row[1].computed_per_answer:.0f}"),
        ),
    )
    console.print(table)
    searches = sides["with"].searches
    told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(searches.items()))
    console.print(f"{len(sides['with'].turns)} answers each; searches: {told or 'none'}")


def as_json(
    load: ChatLoad, shape: Shape, models: Models, sides: Mapping[str, Side]
) -> Mapping[str, Any]:
    """Return the same as a JSON object, with the load and the mesh."""
    served = "shipped pair" if isinstance(models, RealModels) else asdict(models)  # type: ignore[call-overload]
    return {
        "load": asdict(load),
        "shape": asdict(shape),
        "models": served,
        "sides": {name: _side(side) for name, side in sides.items()},
        "versions": versions(),
        "machine": machine(),
    }


def _side(side: Side) -> Mapping[str, Any]:
    first = [turn for turn in side.turns if not turn.number]
    return {
        "answers": len(side.turns),
        "hit_rate": round(side.hit_rate, 4),
        "ttft_ms": asdict(FirstTokenLatency.of(side.later)),
        "first_turn_ttft_ms": asdict(FirstTokenLatency.of(first)),
        "computed_tokens_per_answer": round(side.computed_per_answer, 1),
        "searches": dict(side.searches),
    }
