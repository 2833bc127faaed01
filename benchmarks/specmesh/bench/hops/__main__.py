"""``specmesh bench hops`` or ``python -m specmesh.bench.hops``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from specmesh.bench.hops.measure import HopTimes, measure_hops
from specmesh.cli.runner import run
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Json

app = App()


@app.command()
def main(
    calls: Annotated[int, typer.Option(min=100, help="Calls to each of the three servers.")] = 3000,
    json_: Json = False,
) -> None:
    """Time a verifier that computes nothing, with and without mTLS, and a bare gRPC echo."""

    async def work() -> int:
        times = await measure_hops(calls)
        if json_:
            typer.echo(json.dumps(asdict(times)))
            return 0
        typer.echo(table(times))
        return 0

    run(work())


def table(times: HopTimes) -> str:
    """Format the times in columns, p50 and p99 in ms."""
    rows = (
        ("a call", "bare echo", times.echo_p50_ms, times.echo_p99_ms),
        ("a call", "verifier", times.p50_ms, times.p99_ms),
        ("a call", "verifier, mTLS", times.tls_p50_ms, times.tls_p99_ms),
        ("on an open call", "bare echo", times.echo_open_p50_ms, times.echo_open_p99_ms),
        ("on an open call", "verifier", times.open_p50_ms, times.open_p99_ms),
        ("on an open call", "verifier, mTLS", times.tls_open_p50_ms, times.tls_open_p99_ms),
    )
    lines = [f"{'':<16} {'':<15} {'p50 ms':>8} {'p99 ms':>8}"]
    lines += [f"{how:<16} {who:<15} {p50:8.3f} {p99:8.3f}" for how, who, p50, p99 in rows]
    lines.append(
        f"verifier over echo {times.ratio:.2f}; mTLS over plain text {times.tls_ratio:.2f}, on an "
        f"open call {times.tls_open_ratio:.2f}; p50s of {times.num_calls} calls each"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    app(prog_name="specmesh bench hops")
