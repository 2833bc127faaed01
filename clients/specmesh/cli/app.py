"""The commands."""

from __future__ import annotations

import json
import runpy
import sys
from typing import Annotated

import typer

from specmesh.cli.demo.command import demo
from specmesh.cli.filter.command import bench_filter
from specmesh.cli.generate import generate, models
from specmesh.cli.hops.measure import measure_hops
from specmesh.cli.lookahead.command import bench_lookahead
from specmesh.cli.runner import FAILED, run
from specmesh.cli.strategies.command import bench_strategies
from specmesh.cli.table2.command import bench_mesh
from specmesh.cli.up import up

app = typer.Typer(
    name="specmesh",
    help="Speculative decoding as a mesh of gRPC services.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(no_args_is_help=True, help="Measure this machine.")
calibrate = typer.Typer(no_args_is_help=True, help="Fit what decisions go by.")
app.add_typer(bench, name="bench")
app.add_typer(calibrate, name="calibrate")

app.command()(up)
app.command()(generate)
app.command()(models)
app.command()(demo)
bench.command("strategies")(bench_strategies)
bench.command("lookahead")(bench_lookahead)
bench.command("mesh")(bench_mesh)
bench.command("filter")(bench_filter)


@bench.command()
def hops(
    calls: Annotated[int, typer.Option(min=100, help="Calls to each of the two.")] = 3000,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Time a verifier that computes nothing against a bare gRPC echo."""

    async def work() -> int:
        times = await measure_hops(calls)
        if json_:
            typer.echo(json.dumps(times.as_dict()))
            return 0
        typer.echo(f"verifier  p50 {times.p50_ms:.3f} ms  p99 {times.p99_ms:.3f} ms")
        typer.echo(f"bare echo p50 {times.echo_p50_ms:.3f} ms  p99 {times.echo_p99_ms:.3f} ms")
        typer.echo(f"ratio of the p50s {times.ratio:.2f}, over {times.num_calls} calls each")
        typer.echo(
            f"on an open call: verifier p50 {times.open_p50_ms:.3f} ms, "
            f"bare echo {times.echo_open_p50_ms:.3f} ms"
        )
        return 0

    run(work())


def _pass_through(
    name: str, module: str, extra: str, summary: str, group: typer.Typer = app
) -> None:
    """A command that is another program of ours, with its own options and its own --help."""

    def command(context: typer.Context) -> None:
        sys.argv = [context.command_path, *context.args]
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except ModuleNotFoundError as error:
            typer.echo(
                f"specmesh: {name} needs {error.name}: pip install 'specmesh[{extra}]'", err=True
            )
            raise typer.Exit(FAILED) from error

    group.command(
        name,
        help=summary,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(command)


_pass_through("verifier", "specmesh.verifier", "inference", "Serve a replica of the target.")
_pass_through("drafter", "specmesh.drafter", "inference", "Serve a drafter.")
_pass_through(
    "confidence",
    "specmesh.confidence",
    "orchestrator",
    "Decide which draft tokens need no target, for strategy filter.",
)
_pass_through("orchestrator", "specmesh.orchestrator", "orchestrator", "Serve clients over a mesh.")
_pass_through("train", "specmesh.training", "inference", "Train the model pair that is shipped.")
_pass_through(
    "simulate", "specmesh.orchestrator.simulation", "simulation", "Run strategies in virtual time."
)
_pass_through(
    "engine",
    "specmesh.inference.benchmark",
    "inference",
    "Time the inference engine against transformers' generate.",
    bench,
)
_pass_through(
    "confidence",
    "specmesh.inference.calibrate",
    "inference",
    "Fit when a drafter is sure enough for the target to agree.",
    calibrate,
)
