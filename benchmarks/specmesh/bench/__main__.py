"""``specmesh bench`` or ``python -m specmesh.bench``."""

from __future__ import annotations

import typer

from specmesh.bench.programs import BENCHMARKS
from specmesh.cli.programs import add_programs

app = typer.Typer(
    no_args_is_help=True,
    help="Measure this machine.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
add_programs(app, BENCHMARKS)


if __name__ == "__main__":
    app(prog_name="specmesh bench")
