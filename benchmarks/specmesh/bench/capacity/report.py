"""The report, as tables in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from specmesh.bench.capacity.cells import CapacityCell
from specmesh.bench.capacity.placement import Role
from specmesh.tools.kit.tables import table_of

OFF = "off"

_Columns = Sequence[tuple[str, Callable[[CapacityCell], str]]]


def as_json(cells: Sequence[CapacityCell], alone: Role) -> dict[str, Any]:
    """Return one JSON object. Processor times are in µs, pauses in ms, memory in KB; the role
    ``alone`` had a core for itself."""
    return {"alone": alone, "rows": [_row(each) for each in cells]}


def _row(cell: CapacityCell) -> dict[str, Any]:
    found, pauses = cell.figures, cell.figures.pauses
    return {
        "strategy": cell.load.strategy,
        "streams": cell.load.streams,
        "tracing": cell.tracing or OFF,
        "workers": cell.workers,
        "tokens_per_s": round(found.tokens_per_s, 1),
        "us_per_token": _rounded(found.us_per_token),
        "us_per_call": _rounded(found.us_per_call),
        "pause_ms": {
            "p50": round(pauses.p50, 3),
            "p99": round(pauses.p99, 3),
            "longest": round(pauses.longest, 3),
        },
        "at_once": found.at_once,
        "kb_per_stream": _optional(cell.kb_per_stream),
        "messages_per_token": round(found.messages_per_token, 2),
        "floor_us_per_token": round(cell.floor_us_per_token, 1),
        "failures": dict(cell.failures),
    }


def _rounded(
    figures: Mapping[Role, float] | Mapping[Role, float | None],
) -> dict[str, float | None]:
    return {role: _optional(each) for role, each in figures.items()}


def _optional(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 1)


def tables(cells: Sequence[CapacityCell]) -> Sequence[Table]:
    """Return tables of processor times per token and per call, and of what streams notice and
    take."""
    named: _Columns = (("strategy", _name), ("streams", lambda each: str(each.load.streams)))
    per_token: _Columns = (
        *((role, _token_us(role)) for role in cells[0].figures.us_per_token),
        ("relay", lambda each: f"{each.floor_us_per_token:.0f}"),
        ("over relay", lambda each: f"{_over_floor(each):.1f}x"),
    )
    per_call: _Columns = tuple((role, _call_us(role)) for role in cells[0].figures.us_per_call)
    noticed: _Columns = (
        ("tokens/s", lambda each: f"{each.figures.tokens_per_s:.0f}"),
        ("pause p50", lambda each: f"{each.figures.pauses.p50:.1f}"),
        ("p99", lambda each: f"{each.figures.pauses.p99:.1f}"),
        ("longest", lambda each: f"{each.figures.pauses.longest:.1f}"),
        ("at once", lambda each: str(each.figures.at_once)),
        ("KB", lambda each: _shown(each.kb_per_stream)),
        ("failed", lambda each: str(each.failures.total())),
    )
    return (
        table_of(
            "Processor time, µs per token",
            cells,
            (*named, *per_token),
            caption="relay: a bare grpc.aio relay of as many messages as a token takes",
        ),
        table_of(
            "Processor time, µs per call",
            cells,
            (*named, *per_call),
            caption="the orchestrator's: for each call that it makes to a model",
        ),
        table_of(
            "Streams",
            cells,
            (*named, *noticed),
            caption="pause: ms from one chunk of an answer to the next\n"
            "at once: most answers under way; KB: the orchestrator's memory per stream",
        ),
    )


def _name(cell: CapacityCell) -> str:
    traced = f", {100 * cell.tracing:g} % traced" if cell.tracing else ""
    workers = f", {cell.workers} workers" if cell.workers > 1 else ""
    return f"{cell.load.strategy}{traced}{workers}"


def _token_us(role: Role) -> Callable[[CapacityCell], str]:
    return lambda cell: f"{cell.figures.us_per_token[role]:.0f}"


def _call_us(role: Role) -> Callable[[CapacityCell], str]:
    return lambda cell: _shown(cell.figures.us_per_call[role])


def _over_floor(cell: CapacityCell) -> float:
    return cell.figures.us_per_token[Role.ORCHESTRATOR] / cell.floor_us_per_token


def _shown(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.0f}"
