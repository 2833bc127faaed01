"""The program ``specmesh bench load``."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any

import typer
from rich.console import Console

from specmesh.bench.load import speed as speeds
from specmesh.bench.load import theory as theories
from specmesh.bench.load.explained import explained
from specmesh.bench.load.queue import Md1
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.runner import run
from specmesh.load.results.machine import machine, versions
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Json, Seed
from specmesh.tools.kit.tables import make_table

app = App(
    help="Check 'specmesh load': its accuracy against theory, and the load it can generate.",
    no_args_is_help=True,
)


@app.command()
def theory(
    rho: Annotated[
        float, typer.Option(min=0.01, max=0.95, help="Utilisation of the verifier.")
    ] = 0.7,
    service_ms: Annotated[float, typer.Option(min=0.1, help="Time of each forward.")] = 10.0,
    answers: Annotated[int, typer.Option(min=100, help="Number of measured answers.")] = 100_000,
    seed: Seed = 0,
    json_: Json = False,
) -> None:
    """Compare the waits of requests for one simulated verifier with M/D/1.

    The default takes 24 minutes. Fails if the mean is 5 %, or the 95th percentile 10 %, from what
    the same arrivals wait in an ideal queue. 'chrt --rr 10 specmesh bench load theory' keeps out
    other work on the machine.
    """
    console = Console(stderr=json_, highlight=False)

    async def work() -> int:
        queue = Md1(rho, service_ms / 1e3)
        found = await theories.compare(queue, answers, seed, _directory(), console.print)
        _show_theory(console, found)
        if json_:
            setting = {"rho": rho, "service_ms": service_ms, "seed": seed}
            errors = {"mean_error": found.mean_error, "p95_error": found.p95_error}
            _print_json({**setting, **asdict(found), **errors, "agrees": found.agrees})
        return ExitStatus.OK if found.agrees else ExitStatus.FAILED

    run(explained(work()))


@app.command()
def speed(
    rate: Annotated[float, typer.Option(min=1, help="Answers per second.")] = 1000.0,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of each, in as many chunks.")] = 1,
    seconds: Annotated[float, typer.Option(min=1, help="Measured time.")] = 10.0,
    json_: Json = False,
) -> None:
    """Drive a stub that computes nothing with one generator, and measure the cost of both.

    Fails if fewer than 95 in 100 are answered in time.
    """
    console = Console(stderr=json_, highlight=False)

    async def work() -> int:
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        found = await speeds.measure(rate, tokens, seconds, cores, _directory())
        lag = found.generator.lag_ms
        console.print(
            f"{found.answered_per_s:.0f} answers per second, {found.per_core:.0f} per second of "
            f"a core; the generator took {found.generator.processes[0].cpu_share:.0%} of one, the "
            f"stub {found.stub_cpu_share:.0%}; lag p50 {lag.p50 if lag else 0:.2f} ms, "
            f"p99 {lag.p99 if lag else 0:.2f} ms"
        )
        if json_:
            _print_json({**asdict(found), "per_core": found.per_core})
        kept_up = found.answered_per_s >= 0.95 * found.offered_per_s and not found.failed
        return ExitStatus.OK if kept_up else ExitStatus.FAILED

    run(explained(work()))


def _directory() -> Path:
    return Path(mkdtemp(prefix="specmesh-"))


def _show_theory(console: Console, found: theories.TheoryComparison) -> None:
    table = make_table("Wait in ms", "", "mean", "p50", "p95", "p99")
    rows = (
        ("M/D/1", found.theory),
        ("M/D/1 with these arrivals", found.for_these_arrivals),
        ("measured", found.measured),
    )
    for name, waits in rows:
        cells = (waits.mean, waits.p50, waits.p95, waits.p99)
        table.add_row(name, *(f"{each:.2f}" for each in cells))
    console.print(table)
    lag = found.generator.lag_ms
    console.print(
        f"{found.answers} answers, {found.failed} failed; mean {found.mean_error:+.1%}, "
        f"p95 {found.p95_error:+.1%} from M/D/1 with these arrivals; one that comes alone "
        f"({found.alone_share:.0%}) takes {found.alone_ms:.2f} ms; "
        f"lag p99 {lag.p99 if lag else 0:.2f} ms"
    )


def _print_json(found: dict[str, Any]) -> None:
    typer.echo(json.dumps({**found, "versions": versions(), "machine": machine()}))


if __name__ == "__main__":
    app(prog_name="specmesh bench load")
