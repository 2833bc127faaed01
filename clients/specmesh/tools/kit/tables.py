"""The tables that benchmarks print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from specmesh.cli import tables

Row = TypeVar("Row")


def make_table(title: str, *headings: str) -> tables.WholeTable:
    """Return a table without rows, below an empty line; the first column is left-aligned, the
    others right-aligned."""
    return tables.make_table(f"\n{title}", *headings)


def table_of(
    title: str,
    rows: Iterable[Row],
    columns: Sequence[tuple[str, Callable[[Row], str]]],
    *,
    caption: str = "",
) -> tables.WholeTable:
    """Return a table with a line for each of ``rows``. A column is its heading and a function from
    a row to the cell; the first column is left-aligned, the others right-aligned."""
    table = make_table(title, *(heading for heading, _ in columns))
    table.caption = caption or None
    for row in rows:
        table.add_row(*(cell(row) for _, cell in columns))
    return table


def same(*, identical: bool) -> str:
    """Return a cell that says whether texts equal the target's own."""
    return "[green]yes" if identical else "[bold red]NO"
