"""The report of a run, as text in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from specmesh.bench.memory.measure import MemorySamples
from specmesh.bench.memory.samples import ProcessMemory
from specmesh.bench.memory.summary import FLAT_BYTES, ProcessSummary
from specmesh.cli.tables import make_table

_MB = 1e6
_COLOURS = {"flat": "green", "unclear": "yellow", "grows": "red"}


def table(summaries: Sequence[ProcessSummary]) -> Table:
    """Return a table with a row for each process."""
    made = make_table(
        "Memory by process, MB (private)",
        *("process", "at start", "half-way", "at end", "bytes/request"),
        caption="Growth is that of private memory over the second half, with its 95 % interval;\n"
        f"flat: below {FLAT_BYTES:g} bytes per request.",
    )
    made.add_column("")
    for each in summaries:
        growth = each.growth
        made.add_row(
            each.name,
            *(f"{held.private / _MB:.1f}" for held in (each.at_start, each.half_way, each.at_end)),
            f"{growth.mean:.0f} ({growth.low:.0f} to {growth.high:.0f})",
            f"[{_COLOURS[growth.verdict]}]{growth.verdict}",
        )
    return made


def as_json(measured: MemorySamples, summaries: Sequence[ProcessSummary]) -> dict[str, Any]:
    """Return one JSON object. Memory is in bytes, growth in bytes per request."""
    return {
        "flat": all(each.growth.verdict == "flat" for each in summaries),
        "num_requests": measured.samples[-1].num_requests,
        "seconds": measured.samples[-1].seconds,
        "outcomes": dict(measured.outcomes),
        "processes": {
            each.name: asdict(each)
            | {
                "growth": asdict(each.growth) | {"verdict": each.growth.verdict},
                "over_time": [
                    [sample.num_requests, round(sample.seconds, 1), *_pair(sample.held[each.name])]
                    for sample in measured.samples
                ],
            }
            for each in summaries
        },
    }


def _pair(held: ProcessMemory) -> tuple[int, int]:
    return held.resident, held.private
