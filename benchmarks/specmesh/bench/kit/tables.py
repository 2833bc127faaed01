"""How tables look."""

from __future__ import annotations

from rich import box
from rich.table import Table


def make_table(title: str) -> Table:
    """An empty table in the style of them all."""
    return Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        title=f"\n{title}",
        title_justify="left",
        caption_justify="left",
    )


def same(*, identical: bool) -> str:
    """Whether texts are the target's own, as a cell."""
    return "[green]yes" if identical else "[bold red]NO"
