"""The ``specmesh`` command and its subcommands."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from specmesh.cli.answers.chat import chat
from specmesh.cli.answers.generate import generate
from specmesh.cli.models import app as models
from specmesh.cli.programs import PROGRAMS, SERVICES, add_programs
from specmesh.cli.trace.app import app as trace
from specmesh.cli.up import up
from specmesh.serving.process.typer_app import App


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"specmesh {version('specmesh')}")
        raise typer.Exit


app = App(
    name="specmesh",
    help="Run speculative decoding as a mesh of gRPC services.",
    no_args_is_help=True,
    add_completion=True,
)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    pass


app.command()(up)
app.command()(generate)
app.command()(chat)

app.add_typer(models)
app.add_typer(trace)

services = App(
    name="serve",
    help="Run one service of a mesh.",
    no_args_is_help=True,
)
add_programs(services, SERVICES)
app.add_typer(services)

add_programs(app, PROGRAMS)
