"""Stores with made-up traces for the page to show."""

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from tests.traces.otlp import ANSWER, answer, attribute, group, make_span

from specmesh.traces.store.limits import StoreLimits
from specmesh.traces.store.stored_trace import StoredTrace
from specmesh.traces.store.writer import StoreWriter

CLIENT = Span.SPAN_KIND_CLIENT
EVENTFUL = f"{0xEE:02x}"
LARGE = f"{0xCC:02x}"
SCRIPT = "</script><script>window.hacked = 1</script>"
MARKUP = "<img src=x onerror='window.hacked = 2'>"
SEED = 2**63 - 1
CLOCK_AHEAD_MS = 500.0


def store_with(path, *traces):
    """A store at ``path`` with traces, each a list of groups."""
    writer = StoreWriter(path, StoreLimits())
    assert writer.add([StoredTrace.of(groups) for groups in traces]) == 0
    writer.close()
    return path


def listed(span, key, values):
    """An attribute that is a list of integers or of texts."""
    array = span.attributes.add(key=key).value.array_value
    for value in values:
        kind = "int_value" if isinstance(value, int) else "string_value"
        setattr(array.values.add(), kind, value)
    return span


def answers():
    """A quick one, a slow failed one, and one of another strategy."""
    return (
        answer(0xAA << 120, duration_ms=20.0, num_rounds=3, session="s-1"),
        answer(0xBB << 120, duration_ms=5000.0, num_rounds=3, failed=True),
        answer(0xDD << 120, duration_ms=200.0, strategy="speculative"),
    )


def _call(trace, what, at, length, parent, *, ahead_ms=0.0, **attributes):
    call = make_span(
        trace, f"specmesh.{what}", at, length, parent=parent, kind=CLIENT, rpc__system__name="grpc"
    )
    served = make_span(
        trace,
        f"specmesh.mesh.v1alpha1.{what.title()}Service/{what.title()}",
        at + 1 + ahead_ms,
        length - 2,
        parent=call.span_id,
        specmesh__queue_ms=1.0,
        specmesh__forward_ms=length - 5,
        **attributes,
    )
    return call, served


def eventful():
    """All that can befall an answer: a clock that is ahead, a verification whose server's span is
    lost, one that failed, a draft that was cancelled, a parent that is lost; texts that are markup,
    numbers that JSON lacks."""
    trace = 0xEE << 120
    root = make_span(trace, ANSWER, 0, 100, specmesh__strategy="dsi", specmesh__seed=SEED)
    attribute(root, "specmesh.filter.threshold", float("-inf"))
    attribute(root, "gen_ai.response.id", MARKUP)
    round_ = make_span(trace, "specmesh.round", 1, 60, parent=root.span_id, kind=1)
    draft, drafted = _call(trace, "draft", 2, 20, round_.span_id)
    listed(draft, "specmesh.tree.nodes", [1, 2, 3])
    listed(draft, "specmesh.tree.parents", [0, 1, 2])
    listed(draft, "specmesh.tree.texts", ["def", SCRIPT, " never"])
    verify, verified = _call(trace, "verify", 24, 30, round_.span_id, ahead_ms=CLOCK_AHEAD_MS)
    listed(verify, "specmesh.tree.nodes", [1, 2])
    attribute(verify, "specmesh.verdict.next", 4)
    listed(round_, "specmesh.committed.nodes", [1, 4])
    listed(round_, "specmesh.committed.kinds", ["accepted", "recovered"])
    listed(round_, "specmesh.committed.texts", ["def", MARKUP])
    wasted, stopped = _call(trace, "draft", 30, 25, round_.span_id, specmesh__cancelled=True)
    attribute(wasted, "specmesh.cancelled", True)
    unseen, _ = _call(trace, "verify", 62, 15, root.span_id)
    failed, _ = _call(trace, "verify", 78, 10, root.span_id)
    failed.status.code = Status.STATUS_CODE_ERROR
    orphan = make_span(trace, "specmesh.commit", 90, 5, parent=b"\x07" * 8, kind=1)
    return [
        group("orchestrator", root, round_, draft, verify, wasted, unseen, failed, orphan),
        group("drafter", drafted, stopped),
        group("verifier-0", verified),
    ]


def large(num_spans):
    """An answer of about so many spans: verifications on eight replicas, and drafts."""
    trace = 0xCC << 120
    num_steps = num_spans // 4
    root = make_span(trace, ANSWER, 0, num_steps * 10 + 200, specmesh__strategy="dsi")
    own, drafter, verifiers = [root], [], [[] for _ in range(8)]
    for step in range(num_steps):
        verify, verified = _call(trace, "verify", step * 10, 75, root.span_id)
        draft, drafted = _call(trace, "draft", step * 10, 9, root.span_id)
        own += [verify, draft]
        drafter.append(drafted)
        verifiers[step % len(verifiers)].append(verified)
    named = {f"verifier-{n}": spans for n, spans in enumerate(verifiers)}
    served = [group(node, *spans) for node, spans in {"drafter": drafter, **named}.items()]
    return [group("orchestrator", *own), *served]
