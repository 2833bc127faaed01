"""The tables that the commands print, and where."""

from __future__ import annotations

import sys

from rich.console import Console

_FILE_WIDTH = 160
"""Columns where the output goes to a file or another program."""


def console() -> Console:
    """Standard output, as wide as the terminal."""
    width = None if sys.stdout.isatty() else _FILE_WIDTH
    return Console(highlight=False, width=width)


def short_name(name: str) -> str:
    """A span's name without the package of its service, and without the word service."""
    service, slash, method = name.rpartition("/")
    return f"{service.rpartition('.')[2].removesuffix('Service')}{slash}{method}"
