"""The tables that benchmarks print."""

from __future__ import annotations

from rich import box
from rich.table import Table


def make_table(title: str, *headings: str, no_wrap: bool = False) -> Table:
    """A table without rows, in the style that benchmarks share.

    The first column is aligned left, the others right; ``no_wrap`` keeps the first on one line.
    """
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        title=f"\n{title}",
        title_justify="left",
        caption_justify="left",
    )
    for number, heading in enumerate(headings):
        first = number == 0
        table.add_column(heading, justify="left" if first else "right", no_wrap=first and no_wrap)
    return table


def same(*, identical: bool) -> str:
    """A cell that says whether texts are the target's own."""
    return "[green]yes" if identical else "[bold red]NO"
