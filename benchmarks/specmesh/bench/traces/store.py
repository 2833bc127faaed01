"""The time of the commands on a store with many traces, and the size of a limited store."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from rich.console import Console

from specmesh.bench.traces.multiply import multiplied
from specmesh.cli.trace.opening import load
from specmesh.cli.trace.show import print_trace
from specmesh.traces.store.limits import StoreLimits
from specmesh.traces.store.query import Order, Query
from specmesh.traces.store.reader import StoreReader, bytes_on_disk
from specmesh.traces.store.stored_trace import StoredTrace
from specmesh.traces.store.writer import StoreWriter
from specmesh.traces.summary import Outcome

_BATCH = 100
_REPEATS = 5
_MIB = 1024 * 1024

QUERIES = {
    "newest": Query(),
    "slowest": Query(order=Order.SLOWEST),
    "failed (none)": Query(outcome=Outcome.FAILED),
    "strategy": Query(strategy="dsi"),
    "acceptance below 0 (none)": Query(acceptance_below=0.0),
    "unknown session": Query(session="none"),
    "unknown node": Query(node="none"),
    "slowest of a node": Query(node="verifier-0", order=Order.SLOWEST),
}
"""Queries; those without a result read every row."""


@dataclass(frozen=True, slots=True)
class StoreFindings:
    """The findings. Times are medians in milliseconds, except for ``list_max_ms`` and
    ``show_max_ms``."""

    num_traces: int
    num_spans: int
    mib: float
    fill_s: float
    list_ms: dict[str, float]
    """Times by query, in this process, including opening the store."""
    list_max_ms: float
    show_ms: float
    """Time to find, read, analyse and draw a trace: the newest, slowest and oldest in turn."""
    show_max_ms: float
    show_spans: int
    """Spans of the largest of them."""
    list_command_ms: float
    """Time of the whole command in its own process."""
    show_command_ms: float
    limit_mib: int
    peak_mib: float
    """Largest size seen, all files together, of a store that was filled far beyond that limit."""


def measure_store(
    samples: Sequence[Sequence[ResourceSpans]],
    num_spans: int,
    limit_mib: int,
    directory: Path,
    report: Callable[[str], None],
) -> StoreFindings:
    """Fill a store with copies of ``samples`` and time the commands."""
    path = directory / "many.sqlite"
    began = time.perf_counter()
    fill(path, multiplied(samples, num_spans), StoreLimits(max_bytes=4096 * _MIB))
    fill_s = time.perf_counter() - began
    report(f"{num_spans} spans written in {fill_s:.0f} s")
    with StoreReader(path) as reader:
        extent = reader.extent()
        oldest = reader.select(Query(limit=1_000_000))[-1].trace_id
    lists = time_lists(path)
    names = ("last", "slowest", oldest)
    shows = time_shows(path, names)
    limited = directory / "limited.sqlite"
    some = multiplied(samples, min(num_spans, 30_000 * limit_mib))
    peak = fill(limited, some, StoreLimits(max_bytes=limit_mib * _MIB))
    return StoreFindings(
        num_traces=extent.num_traces,
        num_spans=extent.num_spans,
        mib=extent.num_bytes / _MIB,
        fill_s=fill_s,
        list_ms={name: median(times) for name, times in lists.items()},
        list_max_ms=max(max(times) for times in lists.values()),
        show_ms=median(shows),
        show_max_ms=max(shows),
        show_spans=max(_show(path, name) for name in names),
        list_command_ms=median(_times(partial(_command, path, "list"))),
        show_command_ms=median(_times(partial(_command, path, "show", "last"))),
        limit_mib=limit_mib,
        peak_mib=peak / _MIB,
    )


def fill(path: Path, traces: Iterable[StoredTrace], limits: StoreLimits) -> int:
    """Store ``traces``; return the largest size seen after any batch, in bytes."""
    writer = StoreWriter(path, limits)
    peak = 0
    for batch in _batches(traces):
        writer.add(batch)
        peak = max(peak, bytes_on_disk(path))
    writer.close()
    return peak


def time_lists(path: Path) -> dict[str, list[float]]:
    """Return the milliseconds of several runs of each query, including opening the store."""
    return {name: _times(partial(_list, path, query)) for name, query in QUERIES.items()}


def time_shows(path: Path, names: Sequence[str]) -> list[float]:
    """Return the milliseconds of several runs of finding, reading, analysing and drawing each
    trace."""
    return [ms for name in names for ms in _times(partial(_show, path, name))]


def _batches(traces: Iterable[StoredTrace]) -> Iterator[list[StoredTrace]]:
    left = iter(traces)
    while batch := list(islice(left, _BATCH)):
        yield batch


def _list(path: Path, query: Query) -> int:
    with StoreReader(path) as reader:
        return len(reader.select(query))


def _show(path: Path, name: str) -> int:
    with StoreReader(path) as reader:
        trace = load(reader, name)
    print_trace(trace, Console(file=io.StringIO(), width=120))
    return trace.summary.num_spans


def _command(path: Path, *words: str) -> int:
    command = (sys.executable, "-c", "from specmesh.cli.main import main; main()", "trace")
    subprocess.run((*command, *words, "--store", str(path)), check=True, capture_output=True)
    return 0


def _times(work: Callable[[], int]) -> list[float]:
    """Return the milliseconds of each of several runs, after an untimed one."""
    work()
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1e3)
    return times
