"""A trace as lines for a terminal: one for each node, more if its calls overlap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich.text import Text

from specmesh.traces.analysis.completeness import LOST
from specmesh.traces.analysis.path_parts import Stretch
from specmesh.traces.spans import Node, Span, SpanKind
from specmesh.traces.trace import Trace

LEGEND = (
    ("█", "working", ""),
    ("░", "queued", ""),
    ("▒", "cancelled", ""),
    ("?", "lost", "magenta"),
    ("█", "on the critical path", "bold red"),
)
_CRITICAL = "bold red"
_WORK, _QUEUE, _CANCELLED, _LOST, _IDLE = "█", "░", "▒", "?", " "
_MAX_LANES = 6
_GAP = 2
"""Least columns between two times on the axis."""
_SHORT_NS = 20_000_000
"""Duration below which the axis shows fractions of milliseconds."""


def waterfall(trace: Trace, width: int) -> Iterator[Text]:
    """Yield the lines, of at most ``width`` columns."""
    by_node = _bars(trace)
    label_width = min(max(len(node.label) for node in by_node), 24)
    scale = _Scale(trace.root, width - label_width - 3)
    path: dict[Node, list[Stretch]] = defaultdict(list)
    for stretch in trace.path:
        path[stretch.node].append(stretch)
    yield Text(" " * (label_width + 2)).append(scale.axis(), "dim")
    for node in _in_order(by_node, trace.root):
        lanes = _lanes(by_node[node])
        for number, lane in enumerate(lanes[:_MAX_LANES]):
            label = node.label if number == 0 else ""
            line = Text(f"{label[:label_width]:<{label_width}}  ")
            yield line.append_text(scale.draw(lane, path[node]))
        if len(lanes) > _MAX_LANES:
            more = len(lanes) - _MAX_LANES
            yield Text(f"{'':<{label_width}}  and {more} more at the same time", "dim")
    legend = Text()
    for sign, meaning, style in LEGEND:
        legend.append(sign, style or None).append(f" {meaning}  ", "dim")
    legend.rstrip()
    yield Text(" " * max(min(label_width + 2, width - legend.cell_len), 0)).append_text(legend)


class _Scale:
    """The mapping of moments to columns."""

    def __init__(self, root: Span, width: int) -> None:
        self._root = root
        self._width = max(width, 10)
        self._length_ns = max(root.end_ns - root.start_ns, 1)

    def axis(self) -> str:
        """Return the axis, with the time in milliseconds at its end and at each quarter that is far
        enough from the next time."""
        digits = 0 if self._length_ns >= _SHORT_NS else 2
        line = f"{self._length_ns / 1e6:.{digits}f} ms"
        for quarter in reversed(range(4)):
            time = f"{self._length_ns * quarter / 4e6:.{digits}f}"
            room = self._width - len(line) - self._width * quarter // 4
            if len(time) + _GAP <= room:
                line = f"{time:<{room}}{line}"
        return f"{line:>{self._width}}"

    def draw(self, spans: Sequence[Span], path: Sequence[Stretch]) -> Text:
        """Draw one lane."""
        cells = [_IDLE] * self._width
        styles = [""] * self._width
        for span in spans:
            for column in self._columns(span.start_ns, span.end_ns):
                cells[column], styles[column] = _sign(span)
            for column in self._columns(span.start_ns, span.left_queue_ns, at_least=0):
                cells[column] = _QUEUE
        drawn = {span.span_id for span in spans}
        for stretch in path:
            if stretch.span.span_id in drawn or stretch.span.parent_span_id in drawn:
                for column in self._columns(stretch.start_ns, stretch.end_ns):
                    if cells[column] != _IDLE:
                        styles[column] = _CRITICAL
        line = Text()
        for cell, style in zip(cells, styles, strict=True):
            line.append(cell, style or None)
        return line

    def _columns(self, start_ns: int, end_ns: int, at_least: int = 1) -> range:
        first = (start_ns - self._root.start_ns) * self._width // self._length_ns
        last = (end_ns - self._root.start_ns) * self._width // self._length_ns
        first = min(max(first, 0), self._width - 1)
        return range(first, min(max(last, first + at_least), self._width))


def _sign(span: Span) -> tuple[str, str]:
    if span.name == LOST:
        return _LOST, "magenta"
    return (_CANCELLED if span.was_cancelled and span.parent_span_id else _WORK), ""


def _bars(trace: Trace) -> dict[Node, list[Span]]:
    """Return the spans to draw for each node: its SERVER spans, the root and lost spans, or all its
    spans if there are none of these."""
    by_node: dict[Node, list[Span]] = defaultdict(list)
    for span in trace.spans:
        if span.kind is SpanKind.SERVER or span is trace.root or span.name == LOST:
            by_node[span.node].append(span)
    for span in trace.spans:
        if span.node not in by_node:
            by_node[span.node] = [each for each in trace.spans if each.node == span.node]
    return by_node


def _in_order(by_node: dict[Node, list[Span]], root: Span) -> list[Node]:
    """Return the nodes, first the root's, then sorted by service and instance."""
    return sorted(by_node, key=lambda node: (node != root.node, node.service, node.instance))


def _lanes(spans: Sequence[Span]) -> list[list[Span]]:
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: span.start_ns):
        free = next((lane for lane in lanes if lane[-1].end_ns <= span.start_ns), None)
        if free is None:
            lanes.append([span])
        else:
            free.append(span)
    return lanes
