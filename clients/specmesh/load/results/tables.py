"""The results as tables and lines for a terminal. Names that others give are no markup."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specmesh.cli.printable import in_brief
from specmesh.cli.tables import make_table
from specmesh.load.results.distributions import LatencyDistribution
from specmesh.load.results.report import (
    Point,
    Result,
    ServerLoad,
    TracedRequest,
)

_PERCENTILES = ("p50", "p90", "p95", "p99", "p99_9")
_THOUSAND = 1000
"""Values from here on are shown without decimals."""


def show_result(console: Console, result: Result) -> None:
    """Show the whole result of a run."""
    _show_counts(console, result)
    _show_latencies(console, result)
    if result.speculation is not None:
        cost = result.speculation
        acceptance = "-" if cost.acceptance is None else f"{cost.acceptance:.1%}"
        console.print(
            f"speculation  acceptance {acceptance}, {cost.target_calls_per_token:.3f} target calls "
            f"and {cost.wasted_per_token:.2f} wasted draft tokens per token"
        )
    for each in result.variations:
        ttft, e2e = each.latency.ttft_ms, each.latency.e2e_ms
        console.print(
            f"  {each.name}: {each.counts.answered} answered, "
            f"TTFT p50 {_ms(ttft, 'p50')}, e2e p50 {_ms(e2e, 'p50')} ms",
            markup=False,
        )
    if result.servers:
        _show_servers(console, result.servers)
    _show_traces(console, "slowest", result.slowest)
    _show_traces(console, "failed", result.failed)
    if result.slowest or result.failed:
        console.print("[dim]traces may be missing unless 'specmesh up --trace all' keeps every one")
    show_generator(console, result)


def _show_counts(console: Console, result: Result) -> None:
    counts, throughput = result.counts, result.throughput
    if result.interrupted:
        console.print("[yellow]interrupted: the results cover the time until then")
    console.print(
        f"requests     {counts.due} due, {counts.answered} answered, {counts.failed} failed, "
        f"{counts.cancelled} cancelled, {counts.resumed} resumed"
    )
    for reason, count in result.errors.items():
        console.print(f"             {count} {in_brief(reason)}", style="red", markup=False)
    console.print(
        f"throughput   {throughput.offered_per_s:.2f} offered, {throughput.answered_per_s:.2f} "
        f"answered, {throughput.output_tokens_per_s:.1f} output tokens per second"
    )
    if result.goodput is not None:
        bounds = ", ".join(
            f"{name} {bound:g} ms" for name, bound in result.goodput.objectives_ms.items()
        )
        console.print(
            f"goodput      {_number(result.goodput.share, '.1%')} within {bounds}: "
            f"{result.goodput.per_s:.2f} per second"
        )


def _show_latencies(console: Console, result: Result) -> None:
    rows = (
        ("TTFT", result.latency.ttft_ms),
        ("TPOT", result.latency.tpot_ms),
        ("inter-chunk", result.inter_chunk_ms),
        ("inter-token", result.inter_token_ms),
        ("end to end", result.latency.e2e_ms),
    )
    table = make_table(
        "", "milliseconds", "mean", *(_heading(name) for name in _PERCENTILES), "max"
    )
    for name, found in rows:
        if found is not None:
            names = ("mean", *_PERCENTILES, "max")
            table.add_row(name, *(_ms(found, each) for each in names))
    if table.row_count:
        console.print(table)
    if result.inter_token_ms is None and result.mean_inter_token_ms is not None:
        console.print(
            f"inter-token: {result.mean_inter_token_ms:.1f} ms on average; "
            "the server counts the tokens of answers, not of chunks"
        )
    if result.mean_tokens_per_chunk is not None:
        console.print(f"tokens per chunk: {result.mean_tokens_per_chunk:.2f}")


def _show_servers(console: Console, servers: Sequence[ServerLoad]) -> None:
    table = make_table("", "server", "address", "cores", "in forwards", "queue ms", "most waiting")
    for each in servers:
        waiting = each.max_waiting if each.max_queue_depth is None else each.max_queue_depth
        table.add_row(
            Text(each.role),
            Text(each.address),
            _number(each.cpu_cores, ".2f"),
            _number(each.forward_share, ".0%"),
            _number(each.queue_mean_ms, ".1f"),
            _number(waiting, ".0f"),
        )
    console.print(table)


def _show_traces(console: Console, title: str, requests: Sequence[TracedRequest]) -> None:
    for each in requests:
        why = f" {in_brief(each.reason)}" if each.reason else ""
        console.print(
            f"{title:<8} {each.e2e_ms:9.1f} ms{why}  specmesh trace show {each.trace_id}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def show_generator(console: Console, result: Result) -> None:
    """Show how punctually the load was generated."""
    made = result.generator
    if made.lag_ms is not None:
        busiest = max(each.cpu_share for each in made.processes)
        console.print(
            f"generator    sent {_ms(made.lag_ms, 'p50')} ms late (p50), "
            f"{_ms(made.lag_ms, 'p99')} (p99); {busiest:.0%} of a core"
        )
    for reason in made.bottleneck:
        console.print(f"[bold yellow]the generator may be the bottleneck: {reason}")


def show_points(console: Console, points: Sequence[Point]) -> None:
    """Show a sweep or a search, one line for each run."""
    console.print(
        "[dim]offered and answered: requests per second; TTFT, TPOT and e2e: milliseconds"
    )
    for changed, group in itertools.groupby(points, key=lambda each: each.changed):
        own = list(group)
        if changed:
            settings = " ".join(f"{name}={value}" for name, value in changed.items())
            console.print(settings, markup=False)
        console.print(_points_table(own))
        for each in own:
            if each.saturated:
                why = f"at {_rate(each.rate)}/s {each.saturated}"
                console.print(why, style="yellow", markup=False)
    if any(each.result.generator.bottleneck for each in points):
        console.print("[yellow]* the generator may be the bottleneck: see the report")


def _points_table(points: Sequence[Point]) -> Table:
    table = make_table(
        "",
        *("rate/s", "offered", "answered", "tokens/s", "TTFT\np50", "TTFT\np99"),
        *("TPOT\np50", "e2e\np50", "e2e\np99", "goodput"),
    )
    for each in points:
        found = each.result
        mark = "*" if found.generator.bottleneck else ""
        ttft, tpot, e2e = found.latency.ttft_ms, found.latency.tpot_ms, found.latency.e2e_ms
        columns = ((ttft, "p50"), (ttft, "p99"), (tpot, "p50"), (e2e, "p50"), (e2e, "p99"))
        table.add_row(
            f"{_rate(each.rate)}{mark}",
            _short(found.throughput.offered_per_s, 2),
            _short(found.throughput.answered_per_s, 2),
            _short(found.throughput.output_tokens_per_s),
            *(_short(None if times is None else getattr(times, name)) for times, name in columns),
            _number(None if found.goodput is None else found.goodput.share, ".1%"),
        )
    return table


def _heading(name: str) -> str:
    return name.replace("_", ".")


def _ms(found: LatencyDistribution | None, name: str) -> str:
    return "-" if found is None else f"{getattr(found, name):.1f}"


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= _THOUSAND else f"{value:.4g}"


def _short(value: float | None, digits: int = 1) -> str:
    """Format with ``digits`` decimals, but with none for values of a thousand or more."""
    return _number(value, ".0f" if value is not None and value >= _THOUSAND else f".{digits}f")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
