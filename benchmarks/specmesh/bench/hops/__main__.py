"""``specmesh bench hops`` or ``python -m specmesh.bench.hops``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from specmesh.bench.hops.measure import measure_hops
from specmesh.bench.kit.options import Json
from specmesh.cli.runner import run

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    calls: Annotated[int, typer.Option(min=100, help="Calls to each of the two.")] = 3000,
    json_: Json = False,
) -> None:
    """Time a verifier that computes nothing against a bare gRPC echo."""

    async def work() -> int:
        times = await measure_hops(calls)
        if json_:
            typer.echo(json.dumps(asdict(times)))
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


if __name__ == "__main__":
    app(prog_name="specmesh bench hops")
