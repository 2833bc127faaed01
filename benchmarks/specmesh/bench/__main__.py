"""``specmesh bench`` or ``python -m specmesh.bench``."""

from __future__ import annotations

from specmesh.bench.programs import BENCHMARKS
from specmesh.cli.programs import add_programs
from specmesh.serving.process.typer_app import App

app = App(
    no_args_is_help=True,
    help="Measure meshes and their parts on this machine.",
)
add_programs(app, BENCHMARKS)


if __name__ == "__main__":
    app(prog_name="specmesh bench")
