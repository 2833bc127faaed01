"""``specmesh trace open``, which shows traces in a browser."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Annotated, NoReturn

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.trace.opening import load, opened
from specmesh.cli.trace.options import TraceStore
from specmesh.cli.trace.page.document import document
from specmesh.cli.trace.shorter import shorter, shorter_json
from specmesh.cli.trace.show import trace_json
from specmesh.traces.store.schema import default_path


def open_(
    trace_id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="Select a trace by the beginning of its id, or by 'last' or 'slowest'.",
            show_default="the list of traces",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="Serve the page on this local port; 0 takes any free one."
        ),
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in your browser.")
    ] = True,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Write the trace as one HTML file that needs no server, and exit.",
        ),
    ] = None,
    store: TraceStore = None,
) -> None:
    """Open traces in a browser and serve them until Ctrl-C."""
    path = store or default_path()
    if export is not None:
        if trace_id is None:
            raise typer.BadParameter("--export needs the ID of a trace", param_hint="ID")
        _export(path, trace_id, export)
        return
    serve = _server()
    with opened(path) as reader:
        wanted = "" if trace_id is None else f"#/trace/{reader.find(trace_id)}"

    def ready(url: str, once: str) -> None:
        typer.echo(f"{url}{wanted}")
        typer.echo("press Ctrl-C to stop", err=True)
        if browser:
            # In a thread, since some browsers return only when they end. The URL works once, since
            # every user of the machine can read the arguments of a process.
            Thread(target=webbrowser.open, args=[f"{once}{wanted}"], daemon=True).start()

    try:
        serve(path, port, ready)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        typer.echo(f"specmesh: cannot listen on port {port}: {reason}", err=True)
        raise typer.Exit(ExitStatus.FAILED) from error


def _export(store: Path, trace_id: str, file: Path) -> None:
    with opened(store) as reader:
        trace = load(reader, trace_id)
    simulated = shorter(trace)
    try:
        told = {**trace_json(trace), "what_if": shorter_json(simulated.found)}
        size = file.write_text(document(told), encoding="utf-8")
    except OSError as error:
        typer.echo(f"specmesh: cannot write {file}: {error.strerror}", err=True)
        raise typer.Exit(ExitStatus.FAILED) from error
    typer.echo(f"{file}: trace {trace.summary.trace_id}, {size / 1e6:.1f} MB")
    if simulated.interrupted:
        raise typer.Exit(ExitStatus.INTERRUPTED)


def _server() -> Callable[[Path, int, Callable[[str, str], None]], NoReturn]:
    # The web server is in an extra that the other commands don't need.
    try:
        from specmesh.cli.trace.page.server import serve
    except ModuleNotFoundError as error:
        advice = "pip install 'specmesh[traces]' (or use --export FILE)"
        typer.echo(f"specmesh: trace open needs {error.name}: {advice}", err=True)
        raise typer.Exit(ExitStatus.FAILED) from error
    return serve
