"""The report of a run, as text in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from specmesh.bench.memory.measure import MemorySamples
from specmesh.bench.memory.samples import ProcessMemory
from specmesh.bench.memory.summary import FLAT_BYTES, ProcessSummary
from specmesh.tools.kit.tables import table_of

_MB = 1e6
_COLOURS = {"flat": "green", "unclear": "yellow", "grows": "red"}


def table(summaries: Sequence[ProcessSummary]) -> Table:
    """Return a table with a row for each process."""
    return table_of(
        "Memory by process, MB (private)",
        summaries,
        (
            ("process", lambda each: each.name),
            ("at start", lambda each: f"{each.at_start.private / _MB:.1f}"),
            ("half-way", lambda each: f"{each.half_way.private / _MB:.1f}"),
            ("at end", lambda each: f"{each.at_end.private / _MB:.1f}"),
            (
                "bytes/request",
                lambda each: (
                    f"{each.growth.mean:.0f} ({each.growth.low:.0f} to {each.growth.high:.0f})"
                ),
            ),
            ("", lambda each: f"[{_COLOURS[each.growth.verdict]}]{each.growth.verdict}"),
        ),
        caption="Growth is that of private memory over the second half, with its 95 % interval;\n"
        f"flat: below {FLAT_BYTES:g} bytes per request.",
    )


def is_flat(measured: MemorySamples, summaries: Sequence[ProcessSummary]) -> bool:
    """Return whether requests were answered, and the memory of every process stayed flat."""
    return measured.is_answered and all(each.growth.verdict == "flat" for each in summaries)


def outcomes(measured: MemorySamples) -> str:
    """Return the number of requests by outcome, and whether too many failed, in words."""
    counted = ", ".join(f"{number} {name}" for name, number in measured.outcomes.items())
    if measured.is_answered:
        return counted
    total = measured.outcomes.total()
    return f"{counted}\n[red]{measured.num_failed} of {total} requests failed: memory tells nothing"


def as_json(measured: MemorySamples, summaries: Sequence[ProcessSummary]) -> dict[str, Any]:
    """Return one JSON object. Memory is in bytes, growth in bytes per request."""
    return {
        "flat": is_flat(measured, summaries),
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
