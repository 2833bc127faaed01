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

    def lines(span: Span, depth: int) -> Iterator[Text]:
        offset_ms = (span.start_ns - trace.root.start_ns) / 1e6
        mark = "*" if span.span_id in critical else " "
        line = Text(f"{offset_ms:>10.2f} {span.duration_ms:>10.2f} {mark} {'  ' * depth}")
        line.append(span.name, _style(span)).append(f"  {span.node.label}", "dim")
        if span.was_cancelled:
            line.append("  cancelled", "yellow")
        if span.span_id in lost_servers:
            line.append("  incomplete: its server's span is missing", "bold magenta")
        yield line
        for child in children.get(span.span_id, ()):
            yield from lines(child, depth + 1)

    yield Text(f"{'start ms':>10} {'ms':>10} * on the critical path", "dim")
    yield from lines(trace.root, 0)


def _style(span: Span) -> str:
    if span.name == LOST:
        return "bold magenta"
    return "red" if span.is_error else ""
