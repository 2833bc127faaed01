"""Tables that never cut a number, however narrow the terminal.

If the width is too small, headings wrap at spaces first, then texts. Columns that still don't fit
follow in another table below, which repeats the first columns, as far as their words fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

_GAP = 2
"""Cells between two columns."""
_LONGEST_WHOLE = 16
"""Widest number, in cells, that is not broken between its words (a unit or a second number)."""
_LEAST_TEXT = 14
"""Least cells of a wrapped text column while other columns can still move to a table below."""

_PARTS = re.compile(r"\s+|[^\s/._-]+[/._-]*|[/._-]+")
"""A pattern of spaces, or of a part of a name with the separators after it."""


@dataclass(frozen=True, slots=True)
class ColumnWidth:
    """Widths of a column in cells: unbroken, with its heading broken at spaces, minimal, and that
    of its longest part that ``_broken`` leaves whole."""

    ideal: int
    broken: int
    least: int
    part: int
    is_text: bool


def arrange(needs: Sequence[ColumnWidth], num_first: int, room: int) -> list[dict[int, int]]:
    """Divide columns among tables, one below the other; return each as widths by column.

    Each table begins with the first ``num_first`` columns, which are texts, or with as many of
    these as fit beside the others without a break within a name, at least one.
    """
    for widths in (
        [need.ideal for need in needs],
        [need.broken for need in needs],
        _squeezed(needs, room),
    ):
        if _total(widths) <= room:
            return [dict(enumerate(widths))]
    while num_first > 1 and _total([need.part for need in needs[:num_first]]) > _spare(
        needs[num_first:], room
    ):
        num_first -= 1
    first = list(needs[:num_first])
    others = [_moved(need, room) if need.is_text else need for need in needs[num_first:]]
    spare = _spare(others, room)
    # Names give way to numbers: only names may wrap, and at last one may be broken anywhere.
    for least in (_LEAST_TEXT, _LEAST_TEXT // 2, 1):
        if _total(_squeezed(first, 0)) > spare:
            first = [replace(need, least=min(need.least, need.part, least)) for need in first]
    texts = _squeezed(first, 0)
    parts = _divided(texts, others, room)
    for wider in range(_total(texts) + 1, spare + 1):  # Widen names while it adds no table.
        texts = _squeezed(first, wider)
        found = _divided(texts, others, room)
        if len(found) > len(parts):
            break
        parts = found
    return parts


def _spare(others: Sequence[ColumnWidth], room: int) -> int:
    """Return the room beside the widest of the ``others``."""
    return room - _GAP - max((need.least for need in others), default=0)


def _moved(text: ColumnWidth, room: int) -> ColumnWidth:
    """Return a text that moves to a table below: as wide as its longest part, up to half the
    room."""
    return replace(text, least=max(text.least, min(text.part, room // 2)))


def _divided(
    texts: Sequence[int], others: Sequence[ColumnWidth], room: int
) -> list[dict[int, int]]:
    first = dict(enumerate(texts))
    left = room - _total([*texts, 0])
    return [first | block for block in _blocks(others, len(texts), left)]


def _blocks(needs: Sequence[ColumnWidth], number: int, room: int) -> Iterator[dict[int, int]]:
    """Yield blocks of as many columns as fit into ``room``, at least one each; columns are counted
    from ``number``."""
    block: dict[int, int] = {}
    for column, need in enumerate(needs, start=number):
        if block and _total([*block.values(), need.least]) > room:
            yield block
            block = {}
        block[column] = need.least
    yield block


def _squeezed(needs: Sequence[ColumnWidth], room: int) -> list[int]:
    """Return widths with the widest texts narrowed, none below its least, until they fit."""
    widths = [need.broken if need.is_text else need.least for need in needs]
    while _total(widths) > room:
        can_shrink = [n for n, need in enumerate(needs) if widths[n] > need.least]
        if not can_shrink:
            break
        widths[max(can_shrink, key=widths.__getitem__)] -= 1
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * max(len(widths) - 1, 0)


class WholeTable(Table):
    """A table that is printed in as many parts as its console's width requires."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needs = [_need(column) for column in self.columns]
        firsts = takewhile(lambda column: column.justify == "left", self.columns)
        num_first = min(len(list(firsts)), max(len(needs) - 1, 0))
        blocks = arrange(needs, num_first, options.max_width)
        for number, block in enumerate(blocks):
            part = self._part(block)
            part.title = self.title if number == 0 else None
            if number:
                yield Text()
            yield part
        if self.caption:
            # Below the last part alone it would be wrapped to the width of that.
            yield Text.from_markup(str(self.caption), style="table.caption")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(options.max_width, options.max_width)

    def _part(self, widths: dict[int, int]) -> Table:
        """Return a table of the columns in ``widths``."""
        part = _bare(show_header=any(column.header for column in self.columns))
        for number, width in widths.items():
            column = self.columns[number]
            part.add_column(
                column.header,
                justify=column.justify,
                style=column.style,
                width=max(width, 1),
                overflow="fold",
            )
        cells = [
            [_broken(cell, width) if isinstance(cell, str | Text) else cell for cell in column]
            for column, width in ((self.columns[n].cells, width) for n, width in widths.items())
        ]
        for row, given in zip(self.rows, zip(*cells, strict=True), strict=True):
            part.add_row(*given, style=row.style, end_section=row.end_section)
        return part


def make_table(title: str, *headings: str, num_left: int = 1, caption: str = "") -> WholeTable:
    """Make a table without rows; its first ``num_left`` columns hold texts, the others numbers."""
    table = WholeTable(title=title or None, caption=caption or None)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < num_left else "right")
    return table


def _bare(*, show_header: bool) -> Table:
    return Table(
        show_header=show_header,
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        title_justify="left",
    )


def _need(column: Column) -> ColumnWidth:
    is_text = column.justify == "left"
    cells = [line for cell in column.cells for line in _lines(cell)]
    heading = _lines(column.header)
    of_cells, of_heading = _widest(cells), _widest(_words(heading))
    least = of_cells
    if is_text:
        least = min(of_cells, _LEAST_TEXT)
    elif of_cells > _LONGEST_WHOLE:
        least = _widest(_words(cells))
    return ColumnWidth(
        ideal=max(of_cells, _widest(heading)),
        broken=max(of_cells, of_heading),
        least=max(least, of_heading),
        part=max(of_heading, _widest(each.rstrip() for each in _PARTS.findall("\n".join(cells)))),
        is_text=is_text,
    )


def _text(cell: object) -> Text:
    """Return a heading or cell, which is styled text or markup, as styled text."""
    return cell if isinstance(cell, Text) else Text.from_markup(str(cell))


def _lines(cell: object) -> list[str]:
    return _text(cell).plain.splitlines()


def _broken(cell: str | Text, width: int) -> Text:
    """Return ``cell`` with names that are wider than ``width`` broken after separators."""
    text, breaks, begin = _text(cell), list[int](), 0
    for match in _PARTS.finditer(text.plain):
        if text.plain[match.start()].isspace():
            begin = match.end()
        elif begin < match.start() and cell_len(text.plain[begin : match.end()]) > width:
            begin = match.start()
            breaks.append(begin)
    return Text("\n").join(text.divide(breaks)) if breaks else text


def _words(lines: Iterable[str]) -> list[str]:
    return [word for line in lines for word in line.split()]


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)
