"""The tables that benchmarks print."""

from __future__ import annotations

from specmesh.cli import tables


def make_table(title: str, *headings: str) -> tables.WholeTable:
    """A table without rows, below an empty line; the first column is aligned left, the others
    right."""
    return tables.make_table(f"\n{title}", *headings)


def same(*, identical: bool) -> str:
    """A cell that says whether texts are the target's own."""
    return "[green]yes" if identical else "[bold red]NO"
