"""The console that the ``trace`` commands print to."""

from __future__ import annotations

import sys

from specmesh.cli.printable import PrintableConsole

_FILE_WIDTH = 160
"""Number of columns if the output goes to a file or another program."""


def console() -> PrintableConsole:
    """Return a console on standard output, as wide as the terminal."""
    width = None if sys.stdout.isatty() else _FILE_WIDTH
    return PrintableConsole(highlight=False, width=width)


def short_name(name: str) -> str:
    """Return a span's name without its service's package and the suffix Service."""
    service, slash, method = name.rpartition("/")
    return f"{service.rpartition('.')[2].removesuffix('Service')}{slash}{method}"
