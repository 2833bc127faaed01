"""A CSV file with a row for each request, for spreadsheets and scripts."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from specmesh.load.transports.observation import MeshWork, Observation
from specmesh.load.workload.plan import Workload

_WORK = tuple(field.name for field in fields(MeshWork))
_OWN = tuple(
    field.name
    for field in fields(Observation)
    if field.name not in {"variation", "work", "part", "retry_after_s"}
)
COLUMNS = ("phase", "variation", *_OWN, "ttft_s", "tpot_s", "e2e_s", *_WORK)


def write_csv(file: Path, workload: Workload, observations: Iterable[Observation]) -> None:
    """Write all requests, measured or not, in the order in which they were due. Raises OSError."""
    # A server's reasons may have half characters, which no encoding has.
    with file.open("w", newline="", encoding="utf-8", errors="backslashreplace") as opened:
        rows = csv.writer(opened)
        rows.writerow(COLUMNS)
        for seen in observations:
            work = [getattr(seen.work, name) if seen.work else "" for name in _WORK]
            rows.writerow(
                (
                    workload.extent.phase(seen.due_s).value,
                    workload.variations[seen.variation].name,
                    *(_cell(getattr(seen, name)) for name in _OWN),
                    *(_cell(each) for each in (seen.ttft_s, seen.tpot_s, seen.e2e_s)),
                    *work,
                )
            )


def _cell(value: object) -> object:
    if value is None:
        return ""
    return f"{value:.6f}" if isinstance(value, float) else value
