"""The ``specmesh`` command and its subcommands."""

from __future__ import annotations

import typer

from specmesh.cli.generate import generate, models
from specmesh.cli.programs import PROGRAMS, add_programs
from specmesh.cli.up import up

app = typer.Typer(
    name="specmesh",
    help="Speculative decoding as a mesh of gRPC services.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command()(up)
app.command()(generate)
app.command()(models)
add_programs(app, PROGRAMS)
