"""The tables that the commands print, and where."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table

_FILE_WIDTH = 160
"""Columns where the output goes to a file or another program."""


def console() -> Console:
    """Standard output, as wide as the terminal."""
    width = None if sys.stdout.isatty() else _FILE_WIDTH
    return Console(highlight=False, width=width)


def make_table(title: str, *headings: str, num_left: int = 1, caption: str = "") -> Table:
    """A table without rows; the first ``num_left`` columns hold texts, the others numbers."""
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        title=title or None,
        title_justify="left",
        caption=caption or None,
        caption_justify="left",
    )
    for number, heading in enumerate(headings):
        justify = "left" if number < num_left else "right"
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    return table


def short_name(name: str) -> str:
    """A span's name without the package of its service."""
    service, slash, method = name.rpartition("/")
    return f"{service.rpartition('.')[2]}{slash}{method}"
