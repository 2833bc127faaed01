"""The ``--help`` of all commands, which never truncates an option's name in a narrow terminal.

A name that is too long for its column gets a line of its own above its description.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

_LEAST_WIDTH = 40
_NAMES_SHARE = 0.4
"""The largest share of a panel's width for the column of names."""
_GAP = 2
_EXTRAS = re.compile(r"\[[^\[\]]+\](?=$| \[)")
"""Defaults, bounds and variables at the end of a description."""
_NAME = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")

Row = tuple[str, str]
"""A name and a description."""


def help_of(command: Any, context: Any) -> str:
    """Return the whole help with colour codes, which click strips where there is no terminal."""
    out = io.StringIO()
    width = max(Console().width, _LEAST_WIDTH)
    console = Console(file=out, width=width, force_terminal=True, highlight=False)
    console.print(Padding(Text(_one_line(command.get_usage(context)), "bold yellow"), 1))
    if command.help:
        console.print(Padding(Text(_unwrapped(command.help)), (0, 1, 1, 1)))
    for title, rows in _panels(command, context).items():
        console.print(
            Panel(
                Group(*_rows(rows, width - 4)), title=title, title_align="left", border_style="dim"
            )
        )
    if command.epilog:
        console.print(Padding(Text(_unwrapped(command.epilog)), (0, 1)))
    return out.getvalue()


def _panels(command: Any, context: Any) -> dict[str, list[Row]]:
    """Return rows by panel title: arguments first, then options and commands in their order."""
    panels: dict[str, list[Row]] = {"Arguments": []}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            panel = getattr(parameter, "rich_help_panel", None) or usual
            panels.setdefault(panel, []).append(record)
    if isinstance(command, TyperGroup):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                summary = _unwrapped(below.help or "").partition("\n\n")[0]
                panels.setdefault("Commands", []).append((name, summary))
    return {title: rows for title, rows in panels.items() if rows}


def _rows(rows: Sequence[Row], width: int) -> Iterator[RenderableType]:
    most = int(width * _NAMES_SHARE)
    column = max((len(name) for name, _ in rows if len(name) <= most), default=most)
    for name, described in rows:
        grid = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
        grid.add_column(width=column)
        grid.add_column(width=width - column - _GAP, overflow="fold")
        beside = Text("")
        if len(name) <= column:
            beside = _named(name)
        else:
            yield _named(name)
        grid.add_row(beside, _described(described))
        yield grid


def _named(name: str) -> Text:
    """Return an option's names with its type, or a command's name, as styled text."""
    if not name.startswith("-"):
        return Text(name, "bold cyan")
    text = Text(name, "yellow", overflow="fold")
    text.highlight_regex(_NAME, "bold cyan")
    return text


def _described(described: str) -> Text:
    text = Text(_one_line(described))
    text.highlight_regex(_EXTRAS, "dim")
    return text


def _unwrapped(text: str) -> str:
    """Join each paragraph of a docstring into one line."""
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(map(_one_line, paragraphs))


def _one_line(text: str) -> str:
    return " ".join(text.split())
