"""Spans of a made-up answer, in milliseconds."""

from dataclasses import replace

from specmesh.traces.spans import Node, Span, SpanKind

CLIENT = Node("specmesh-client", "c")
ORCHESTRATOR = Node("specmesh-orchestrator", "o")
DRAFTER = Node("specmesh-drafter", "d")
VERIFIER = Node("specmesh-verifier", "v")


def span(span_id, parent, name, kind, node, start_ms, end_ms, **attributes):
    return Span(
        trace_id="t",
        span_id=span_id,
        parent_span_id=parent,
        name=name,
        kind=kind,
        node=node,
        start_ns=int(start_ms * 1e6),
        end_ns=int(end_ms * 1e6),
        attributes={f"specmesh.{key}": value for key, value in attributes.items()},
        is_error=False,
    )


def client(start, end):
    return span("c", "", "specmesh.generate", SpanKind.CLIENT, CLIENT, start, end)


def generate(start, end):
    name = "specmesh.v1.GenerationService/Generate"
    return span("g", "c", name, SpanKind.SERVER, ORCHESTRATOR, start, end)


def round_(start, end, n=1):
    kind = SpanKind.INTERNAL
    return span(f"r{n}", "g", "specmesh.round", kind, ORCHESTRATOR, start, end)


def commit(start, end, n=1):
    kind = SpanKind.INTERNAL
    return span(f"k{n}", f"r{n}", "specmesh.commit", kind, ORCHESTRATOR, start, end)


def call(what, node, caller, server, n=1, **attributes):
    name = {"draft": "specmesh.mesh.v1alpha1.DrafterService/Draft"}.get(
        what, "specmesh.mesh.v1alpha1.VerifierService/Verify"
    )
    out = span(f"{what}{n}", f"r{n}", f"specmesh.{what}", SpanKind.CLIENT, ORCHESTRATOR, *caller)
    served = span(f"{what}{n}s", f"{what}{n}", name, SpanKind.SERVER, node, *server, **attributes)
    return [out, served]


def cancelled_call(what, node, caller, server, n=1):
    """As ``call``, ended on purpose; ``server`` None if it never got there."""
    spans = call(what, node, caller, server or (0, 0), n, cancelled=True)
    out = replace(spans[0], attributes={"specmesh.cancelled": True})
    return [out, spans[1]] if server else [out]


def cancel(start, end, n=1):
    return span(
        f"x{n}-{start}", f"r{n}", "specmesh.cancel", SpanKind.INTERNAL, ORCHESTRATOR, start, end
    )


def verification(caller, num_drafted, num_accepted, n=1):
    """A call of the verifier that was answered; the server needed all the time there was."""
    out, served = call("verify", VERIFIER, caller, caller, n, forward_ms=caller[1] - caller[0])
    counts = {"specmesh.draft.tokens": num_drafted, "specmesh.accepted.tokens": num_accepted}
    return [replace(out, attributes=counts), served]


def draft(caller, depth, n=1, asked=None):
    """A call of the drafter that was answered with a chain of ``depth``, of as many levels as were
    asked for unless ``asked`` is given."""
    out, served = call("draft", DRAFTER, caller, caller, n, forward_ms=caller[1] - caller[0])
    attributes = {
        "specmesh.draft.depth": asked or depth,
        "specmesh.tree.nodes": tuple(range(1, depth + 1)),
        "specmesh.tree.parents": tuple(range(depth)),
    }
    return [replace(out, attributes=attributes), served]


def committed_round(start, end, num_tokens, n=1):
    return replace(round_(start, end, n), attributes={"specmesh.committed.tokens": num_tokens})
