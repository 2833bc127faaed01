"""Spans of made-up answers as OTLP messages."""

import itertools

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status

_numbers = itertools.count(1)

ANSWER = "specmesh.v1.GenerationService/Generate"
MS = 1_000_000
START_NS = 1_700_000_000_000_000_000


def trace_id(number):
    """Its lower half decides on the share that is kept: numbers near 0 are in any."""
    return number.to_bytes(16)


def attribute(span, key, value):
    pair = span.attributes.add(key=key)
    kind = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}
    setattr(pair.value, kind[type(value)], value)


def make_span(trace, name, start_ms=0.0, duration_ms=1.0, *, parent=b"", kind=None, **attributes):
    number = next(_numbers)
    span = Span(
        trace_id=trace_id(trace),
        span_id=number.to_bytes(8),
        parent_span_id=parent,
        name=name,
        kind=kind or Span.SPAN_KIND_SERVER,
        start_time_unix_nano=START_NS + int(start_ms * MS),
        end_time_unix_nano=START_NS + int((start_ms + duration_ms) * MS),
    )
    for key, value in attributes.items():
        attribute(span, key.replace("__", "."), value)
    return span


def group(node, *spans):
    """What the process ``node`` sends."""
    made = ResourceSpans()
    for key, value in {"service.name": f"specmesh-{node}", "service.instance.id": node}.items():
        made.resource.attributes.add(key=key).value.string_value = value
    made.scope_spans.add(spans=spans).scope.name = "specmesh"
    return made


def answer(trace, *, duration_ms=10.0, failed=False, num_rounds=1, strategy="dsi", session=""):
    """The groups of an answer: the orchestrator's and a verifier's."""
    root = make_span(trace, ANSWER, 0.0, duration_ms, specmesh__strategy=strategy)
    if session:
        attribute(root, "gen_ai.response.id", session)
    if failed:
        root.status.code = Status.STATUS_CODE_ERROR
        root.status.message = failed if isinstance(failed, str) else ""
    own, served = [root], []
    for number in range(num_rounds):
        at = number * duration_ms / num_rounds
        length = duration_ms / num_rounds
        parent = own[0].span_id
        own.append(make_span(trace, "specmesh.round", at, length, parent=parent, kind=1))
        call = make_span(
            trace,
            "specmesh.verify",
            at,
            length,
            parent=own[-1].span_id,
            kind=Span.SPAN_KIND_CLIENT,
            **{"rpc__system__name": "grpc"},
        )
        own.append(call)
        served.append(
            make_span(trace, "Verify", at, length, parent=call.span_id, specmesh__queue_ms=0.5)
        )
    return [group("orchestrator", *own), group("verifier", *served)]
