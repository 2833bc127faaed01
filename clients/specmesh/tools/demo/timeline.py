"""A terminal picture of part of an answer's timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from specmesh.serving.conventions import DRAFT_SPAN, VERIFY_SPAN
from specmesh.traces.analysis.timeline import Bar, Row, Timeline

WIDTH = 80
_LABEL = 13
_CELLS = WIDTH - _LABEL
_TICK_CELLS = 10

_FILL = {VERIFY_SPAN: "V", DRAFT_SPAN: "d"}
_STYLE = {VERIFY_SPAN: "bold white on blue", DRAFT_SPAN: "black on green"}
_CANCELLED = "x"
_CANCELLED_STYLE = "bold white on red"
_REJECTED_STYLE = "bold red"
_COMMITTED_STYLE = "bold green"
_BEGIN = "["
_MANY = 10
"""The smallest number with more than one digit."""


@dataclass(frozen=True, slots=True)
class _Cells:
    """The mapping of times to cells."""

    start_ns: int
    cell_ns: float

    def cell(self, at_ns: int) -> int:
        return int((at_ns - self.start_ns) // self.cell_ns)


LEGEND = Text("\n").join(
    [
        Text.assemble(
            ("[VVV", _STYLE[VERIFY_SPAN]),
            " the target verifies   ",
            ("[ddd", _STYLE[DRAFT_SPAN]),
            " a drafter drafts   ",
            (_CANCELLED, _CANCELLED_STYLE),
            " cancelled, stops here",
        ),
        Text.assemble(
            ("R", _REJECTED_STYLE),
            " a drafted token is wrong   ",
            ("3", _COMMITTED_STYLE),
            f" tokens became part of the answer, + {_MANY} or more",
        ),
    ]
)
"""The legend of the letters in a picture."""


def timeline_picture(stretch: Timeline, title: str) -> Text:
    """Return a picture with a row for each server over time, WIDTH columns wide; readable without
    colours."""
    scale = _Cells(stretch.start_ns, (stretch.end_ns - stretch.start_ns) / _CELLS)
    lines = [
        Text(f"\n{title}", style="italic"),
        _axis(stretch, scale),
        *(_row(row, scale) for row in stretch.rows),
        _marks("rejected", _REJECTED_STYLE, scale, [(at, "R") for at in stretch.rejections_ns]),
        _marks(
            "committed",
            _COMMITTED_STYLE,
            scale,
            [(each.at_ns, _digit(each.num_tokens)) for each in stretch.commits],
        ),
    ]
    return Text("\n").join(lines)


def _digit(number: int) -> str:
    return str(number) if number < _MANY else "+"


def _axis(stretch: Timeline, scale: _Cells) -> Text:
    """Return the axis: milliseconds since the client's request, every few cells."""
    cells = [" "] * _CELLS
    first_ms = (stretch.start_ns - stretch.answer_start_ns) / 1e6
    step_ms = _round_step(_TICK_CELLS * scale.cell_ns / 1e6)
    tick_ms = -(-first_ms // step_ms) * step_ms
    while (cell := scale.cell(stretch.answer_start_ns + int(tick_ms * 1e6))) < _CELLS:
        label = f"|{tick_ms:g}"
        if cell + len(label) <= _CELLS:
            cells[cell : cell + len(label)] = label
        tick_ms += step_ms
    return _line("ms", Text("".join(cells), style="dim"))


def _round_step(at_least_ms: float) -> float:
    """Return the first of 1, 2, 5, 10, 20, 50, ... that is not below ``at_least_ms``."""
    step_ms = 1.0
    while step_ms < at_least_ms:
        step_ms *= 2.5 if f"{step_ms:g}".startswith("2") else 2
    return step_ms


def _row(row: Row, scale: _Cells) -> Text:
    cells = [" "] * _CELLS
    styles: list[tuple[str, int, int]] = []
    for bar in row.bars:
        first, last = _cells_of(bar, scale)
        fill = [_FILL[row.what]] * (last - first + 1)
        if scale.cell(bar.start_ns) >= 0:
            fill[0] = _BEGIN
        styles.append((_STYLE[row.what], first, last + 1))
        if bar.cancelled and scale.cell(bar.end_ns) < _CELLS:
            fill[-1] = _CANCELLED
            styles.append((_CANCELLED_STYLE, last, last + 1))
        cells[first : last + 1] = fill
    text = Text("".join(cells))
    for style, first, end in styles:
        text.stylize(style, first, end)
    return _line(row.node.instance or row.node.service, text)


def _cells_of(bar: Bar, scale: _Cells) -> tuple[int, int]:
    first = min(max(scale.cell(bar.start_ns), 0), _CELLS - 1)
    return first, max(first, min(scale.cell(bar.end_ns), _CELLS) - 1)


def _marks(label: str, style: str, scale: _Cells, marks: Sequence[tuple[int, str]]) -> Text:
    cells = [" "] * _CELLS
    for at_ns, mark in marks:
        cells[min(scale.cell(at_ns), _CELLS - 1)] = mark
    return _line(label, Text("".join(cells), style=style))


def _line(label: str, cells: Text) -> Text:
    return Text.assemble(f"{label:<{_LABEL}.{_LABEL - 1}}", cells)
