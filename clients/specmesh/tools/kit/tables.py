"""The tables that benchmarks print."""

from __future__ import annotations

from specmesh.cli import tables


def make_table(title: str, *headings: str) -> tables.WholeTable:
    """Return a table without rows, below an empty line; the first column is left-aligned, the
    others right-aligned."""
    return tables.make_table(f"\n{title}", *headings)


def same(*, identical: bool) -> str:
    """Return a cell that says whether texts equal the target's own."""
    return "[green]yes" if identical else "[bold red]NO"
