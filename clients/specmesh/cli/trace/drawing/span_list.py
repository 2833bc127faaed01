"""The spans of a trace as an indented list."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from specmesh.traces.analysis.completeness import LOST, MissingSpan
from specmesh.traces.spans import Span
from specmesh.traces.trace import Trace


def span_list(trace: Trace) -> Iterator[Text]:
    """Yield a line for each span; those on the critical path are marked."""
    children = trace.children()
    critical = {stretch.span.span_id for stretch in trace.path}
    lost_servers = {
        gap.below.span_id for gap in trace.gaps if gap.loss is MissingSpan.SERVER and gap.below
    }

    def line_of(span: Span, depth: int) -> Text:
        offset_ms = (span.start_ns - trace.root.start_ns) / 1e6
        mark = "*" if span.span_id in critical else " "
        line = Text(f"{offset_ms:>10.2f} {span.duration_ms:>10.2f} {mark} {'  ' * depth}")
        line.append(span.name, _style(span)).append(f"  {span.node.label}", "dim")
        if span.was_cancelled:
            line.append("  cancelled", "yellow")
        if span.span_id in lost_servers:
            line.append("  incomplete: its server's span is missing", "bold magenta")
        return line

    yield Text(f"{'start ms':>10} {'ms':>10} * on the critical path", "dim")
    left = [(trace.root, 0)]
    while left:
        span, depth = left.pop()
        yield line_of(span, depth)
        left += [(child, depth + 1) for child in reversed(children.get(span.span_id, ()))]


def _style(span: Span) -> str:
    if span.name == LOST:
        return "bold magenta"
    return "red" if span.is_error else ""
