"""The report of the loads, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from specmesh.bench.overload.cells import OverloadCell, OverloadLoad
from specmesh.load.results.machine import machine, versions
from specmesh.tools.kit.tables import table_of

_TWICE = 2.0


def table(cells: Sequence[OverloadCell]) -> Table:
    """Return a table with a row for each load."""
    return table_of(
        "Answers per second under overload",
        cells,
        (
            ("load", lambda each: f"{each.door} x{each.factor:g}"),
            ("capacity", lambda each: f"{each.capacity:.1f}"),
            ("offered", lambda each: f"{each.offered:.1f}"),
            ("goodput", lambda each: f"{each.goodput:.1f} ({each.share:.0%})"),
            ("refused", lambda each: f"{each.refused_share:.0%}"),
            ("p50 ms", lambda each: _ms(each.refused_p50_ms)),
            ("p99 ms", lambda each: _ms(each.refused_p99_ms)),
            ("broken", lambda each: str(each.accepted_failed)),
            ("changed", lambda each: f"{each.num_changed}/{each.num_repeated}"),
            ("room", _rooms),
            ("queue", lambda each: str(each.queue_peak)),
            ("lag", lambda each: f"{each.lag_p99_ms:.0f}"),
            ("", lambda each: "[green]good" if each.is_good else "[bold red]BAD"),
        ),
        caption="Room: of each orchestrator before, at its peak, and after the load. Broken:\n"
        "accepted, and then not answered. Changed: of the answers that were asked for again\n"
        "after the load. Lag: p99 of how late requests were sent, in ms.",
    )


def as_json(load: OverloadLoad, cells: Sequence[OverloadCell]) -> Mapping[str, Any]:
    """Return the same as a JSON object, with the load and the machine."""
    return {
        "load": asdict(load),
        "good": all(each.is_good for each in cells),
        "overload": summary(cells),
        "cells": [
            {**asdict(each), "share": round(each.share, 4), "good": each.is_good} for each in cells
        ],
        "versions": versions(),
        "machine": machine(),
    }


def summary(cells: Sequence[OverloadCell]) -> Mapping[str, float | None]:
    """Return the figures of the first door: its capacity and the goodput at twice as much, in
    answers per second, and the slowest 99th percentile of refusals of all loads, in milliseconds;
    None for what was not measured."""
    own = [each for each in cells if each.door == cells[0].door]
    twice = next((each.goodput for each in own if each.factor == _TWICE), None)
    slowest = [each.refused_p99_ms for each in cells if each.refused_p99_ms is not None]
    return {
        "capacity": own[0].capacity,
        "goodput_at_2x": twice,
        "refused_p99_ms": max(slowest, default=None),
    }


def _ms(each: float | None) -> str:
    return "-" if each is None else f"{each:.0f}"


def _rooms(cell: OverloadCell) -> str:
    rooms = (cell.rooms_before, cell.rooms_peak, cell.rooms_after)
    return " ".join("+".join(map(str, each)) for each in rooms)
