"""``specmesh trace show``, which shows one trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.tables import make_table
from specmesh.cli.trace.drawing.span_list import span_list
from specmesh.cli.trace.drawing.token_lines import token_lines
from specmesh.cli.trace.drawing.waterfall import waterfall
from specmesh.cli.trace.listing import began, percent, summary_json
from specmesh.cli.trace.opening import load, opened
from specmesh.cli.trace.options import Json, TraceId, TraceStore
from specmesh.cli.trace.page.plain import json_text
from specmesh.cli.trace.shorter import LIMIT_S, Shorter, shorter, shorter_json, shorter_lines
from specmesh.cli.trace.tables import console, short_name
from specmesh.traces.analysis.completeness import describe, summed_up
from specmesh.traces.analysis.path_parts import PathPart, Stretch, summed
from specmesh.traces.analysis.token_tree import TracedTokenTree, token_tree
from specmesh.traces.spans import Span
from specmesh.traces.summary import failure
from specmesh.traces.trace import Trace

_NUM_PARTS = 12
_MISSING = "bold magenta"


def show(
    trace_id: TraceId,
    spans: Annotated[bool, typer.Option("--spans", help="List every span.")] = False,
    path: Annotated[
        bool, typer.Option("--path", help="List the critical path from beginning to end.")
    ] = False,
    what_if: Annotated[
        bool,
        typer.Option(
            "--what-if/--no-what-if",
            help="Simulate what would have shortened it; Ctrl-C shows the results so far.",
        ),
    ] = True,
    what_if_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="Simulate for at most this many seconds; changes that were not simulated are "
            "named.",
        ),
    ] = LIMIT_S,
    store: TraceStore = None,
    json_: Json = False,
) -> None:
    """Show one trace: what each service did when, where the time went, the fate of each token, and
    what would have shortened the answer."""
    with opened(store) as reader:
        trace = load(reader, trace_id)
    if json_:
        simulated = _simulated(trace, what_if_seconds) if what_if else None
        found = {"what_if": shorter_json(simulated.found)} if simulated else {}
        typer.echo(json_text({**trace_json(trace), **found}))
        raise typer.Exit(_status(simulated))
    out = console()
    print_trace(trace, out)
    simulated = _simulated(trace, what_if_seconds) if what_if else None
    if simulated is not None:
        out.print()
        for line in shorter_lines(simulated.found):
            out.print(line)
    if path:
        out.print()
        _print_lines(out, _path_lines(trace))
    if spans:
        out.print()
        _print_lines(out, span_list(trace))
    raise typer.Exit(_status(simulated))


def _simulated(trace: Trace, limit_s: float) -> Shorter:
    """Simulate, with a progress message on the terminal."""
    with Console(stderr=True).status("simulating what would have shortened it; Ctrl-C ends that"):
        return shorter(trace, limit_s)


def _status(simulated: Shorter | None) -> ExitStatus:
    was_interrupted = simulated is not None and simulated.interrupted
    return ExitStatus.INTERRUPTED if was_interrupted else ExitStatus.OK


def print_trace(trace: Trace, out: Console) -> None:
    """Print what ``show`` prints without options."""
    for line in heading(trace):
        out.print(line, soft_wrap=True)
    out.print()
    _print_lines(out, waterfall(trace, out.width))
    out.print()
    out.print(_nodes(trace))
    out.print()
    out.print(_parts(summed(trace.path), trace))
    if trace.gaps:
        out.print("spans are missing: this is the critical path of those known", style=_MISSING)
    if (tree := token_tree(trace.spans)) is not None:
        out.print()
        for line in token_lines(tree):
            out.print(line, soft_wrap=True)


def _print_lines(out: Console, lines: Iterable[Text]) -> None:
    """Print lines, cut off at the width of the terminal."""
    for line in lines:
        out.print(line, no_wrap=True, overflow="crop")


def heading(trace: Trace) -> Iterator[Text]:
    """Yield the trace's identity and outcome, and what limits its accuracy."""
    summary = trace.summary
    words = [summary.outcome.value, summary.reason, f"{summary.duration_ms:.1f} ms"]
    words += [summary.strategy, summary.model]
    if summary.num_tokens is not None:
        words.append(f"{summary.num_tokens} tokens")
    if summary.acceptance is not None:
        words.append(f"acceptance {percent(summary.acceptance)}")
    yield Text(summary.trace_id, "bold").append(f"  {summary.name}", "not bold")
    yield Text(f"{began(summary)}  {', '.join(filter(None, words))}")
    if message := failure(trace.spans):
        yield Text(f"failed: {message}", "red")
    if summary.sessions:
        word = "session" if len(summary.sessions) == 1 else "sessions"
        yield Text(f"{word} {', '.join(summary.sessions)}", "dim")
    for line in summed_up(trace.gaps):
        yield Text(f"incomplete: {line}", _MISSING)
    for each in trace.corrections:
        doubt = ", calls contradict each other" if each.contradictory else ""
        known = each.uncertainty_ms is not None
        error = f" ± {each.uncertainty_ms:.1f}" if known else " or more"
        offset = f"{each.offset_ms:+.1f} ms{error}{doubt}"
        yield Text(f"clock of {each.node.label} corrected by {offset}", "cyan")


def _nodes(trace: Trace) -> Table:
    headings = ("node", "calls", "busy", "queue", "forward", "own", "network", "critical path", "")
    caption = "queue, forward, own and network are sums over all calls, even concurrent ones"
    table = make_table("time by node, in ms", *headings, caption=caption)
    found = trace.breakdown()
    for node in found.nodes:
        times = (node.busy_ms, node.queue_ms, node.forward_ms, node.other_ms, node.hop_ms)
        table.add_row(
            Text(node.node.label),
            str(node.num_calls),
            *(f"{ms:.1f}" for ms in times),
            f"{node.path_ms:.1f}",
            percent(found.share(node)),
        )
    return table


def _parts(parts: list[PathPart], trace: Trace) -> Table:
    table = make_table("critical path, in ms", "node", "what", "in", "ms", "", num_left=3)
    for part in parts[:_NUM_PARTS]:
        share = percent(part.ms / trace.root.duration_ms)
        named = Text(part.node.label), part.part, Text(short_name(part.name))
        table.add_row(*named, f"{part.ms:.1f}", share)
    if others := parts[_NUM_PARTS:]:
        ms = sum(part.ms for part in others)
        share = percent(ms / trace.root.duration_ms)
        table.add_row(
            f"{len(others)} {'other' if len(others) == 1 else 'others'}", "", "", f"{ms:.1f}", share
        )
    return table


def _path_lines(trace: Trace) -> Iterator[Text]:
    yield Text(f"{'start ms':>10} {'ms':>10}", "dim")
    for each in trace.path:
        offset_ms = (each.start_ns - trace.root.start_ns) / 1e6
        line = Text(f"{offset_ms:>10.2f} {each.ms:>10.2f} ")
        yield line.append(f"{each.node.label} {each.part}").append(
            f"  {short_name(each.span.name)}", "dim"
        )


def trace_json(trace: Trace) -> dict[str, Any]:
    """Return all that ``show`` prints as JSON, with times in ms since the root began."""
    found = trace.breakdown()
    tree = token_tree(trace.spans)
    return {
        "summary": summary_json(trace.summary),
        "failure": failure(trace.spans),
        "incomplete": [
            {
                "loss": gap.loss.name.lower(),
                "what": describe(gap),
                "below": gap.below.span_id if gap.below else None,
                "above": [span.span_id for span in gap.above],
            }
            for gap in trace.gaps
        ],
        "clocks": [{**asdict(each), "node": each.node.label} for each in trace.corrections],
        "nodes": [
            {**asdict(node), "node": node.node.label, "path_share": found.share(node)}
            for node in found.nodes
        ],
        "critical_path": [_stretch_json(each, trace.root) for each in trace.path],
        "critical_path_parts": [
            {**asdict(part), "node": part.node.label} for part in summed(trace.path)
        ],
        "tokens": None if tree is None else _tree_json(tree),
        "spans": [_span_json(span, trace.root) for span in trace.spans],
    }


def _stretch_json(stretch: Stretch, root: Span) -> dict[str, Any]:
    return {
        "node": stretch.node.label,
        "part": stretch.part,
        "span_id": stretch.span.span_id,
        "name": stretch.name,
        "start_ms": (stretch.start_ns - root.start_ns) / 1e6,
        "ms": stretch.ms,
    }


def _tree_json(tree: TracedTokenTree) -> dict[str, Any]:
    wasted = [token for tokens in tree.below.values() for token in tokens]
    return {
        "counts": tree.counts(),
        "committed": [asdict(token) for token in tree.committed],
        "wasted": [asdict(token) for token in wasted],
    }


def _span_json(span: Span, root: Span) -> dict[str, Any]:
    return {
        "span_id": span.span_id,
        "parent_span_id": span.parent_span_id,
        "name": span.name,
        "kind": span.kind.value,
        "node": span.node.label,
        "start_ms": (span.start_ns - root.start_ns) / 1e6,
        "ms": span.duration_ms,
        "is_error": span.is_error,
        "attributes": dict(span.attributes),
    }
