"""``specmesh trace export``, which writes traces for other programs."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.trace.opening import opened
from specmesh.cli.trace.options import TraceStore
from specmesh.cli.trace.page.plain import json_text
from specmesh.traces.formats.chrome import to_chrome
from specmesh.traces.formats.otlp import to_line
from specmesh.traces.spans import spans_from
from specmesh.traces.trace import Trace


class Format(StrEnum):
    """A format that other programs read."""

    OTLP = "otlp"
    """OTLP JSON of all that was recorded, one line per trace."""
    CHROME = "chrome"
    """Events for Perfetto (ui.perfetto.dev) and chrome://tracing, with corrected clocks."""


def export(
    trace_ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Select traces by the beginning of their id, or by 'last' or 'slowest'; Chrome's "
            "format holds only one.",
        ),
    ],
    form: Annotated[
        Format,
        typer.Option("--format", help="Write OTLP JSON lines, or Chrome's events for Perfetto."),
    ] = Format.OTLP,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write to this file.", show_default="standard output"),
    ] = None,
    store: TraceStore = None,
) -> None:
    """Export traces for other programs."""
    if form is Format.CHROME and len(trace_ids) > 1:
        raise typer.BadParameter("Chrome's format holds only one trace", param_hint="ID")
    with opened(store) as reader:
        chosen = dict.fromkeys(map(reader.find, trace_ids))  # each once, whatever names it
        found = [reader.spans(each).resource_spans for each in chosen]
    if form is Format.CHROME:
        text = json_text(to_chrome(Trace.of(list(spans_from(found[0])))))
    else:
        text = "\n".join(to_line(groups) for groups in found)
    try:
        if output is None:
            sys.stdout.write(f"{text}\n")
        else:
            output.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        typer.echo(f"specmesh: cannot write {output}: {error.strerror}", err=True)
        raise typer.Exit(ExitStatus.FAILED) from error
