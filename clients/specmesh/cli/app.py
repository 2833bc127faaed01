"""The commands."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from specmesh.cli.demo.command import demo
from specmesh.cli.filter.command import bench_filter
from specmesh.cli.generate import generate, models
from specmesh.cli.hops.measure import measure_hops
from specmesh.cli.lookahead.command import bench_lookahead
from specmesh.cli.memory.command import bench_memory
from specmesh.cli.programs import PROGRAMS, Program
from specmesh.cli.runner import run
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
bench.command("memory")(bench_memory)


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


def _add(program: Program) -> None:
    *group, name = program.name.split()

    def command(context: typer.Context) -> None:
        program.run(context.command_path, context.args)

    _GROUPS[" ".join(group)].command(
        name,
        help=program.summary,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(command)


_GROUPS = {"": app, "bench": bench, "calibrate": calibrate}

for _program in PROGRAMS:
    _add(_program)
