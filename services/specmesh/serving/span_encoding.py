"""Spans become OTLP messages, at a third of what OpenTelemetry's own encoder takes.

Encoding was two thirds of what a span costs, in the process that makes the answers. Most attributes
come again and again, with the same value, so each such pair is encoded once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, SpanFlags, Status
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from opentelemetry.util.types import AttributeValue

_LOCAL = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_REMOTE = _LOCAL | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK

_CODES = {
    StatusCode.UNSET: Status.STATUS_CODE_UNSET,
    StatusCode.OK: Status.STATUS_CODE_OK,
    StatusCode.ERROR: Status.STATUS_CODE_ERROR,
}
_EXACT = {frozenset({kind}) for kind in (int, str)}
"""What the items of a list may be that is likely to come again. Floats are not: times hardly do,
and 0.0 and -0.0 are equal."""


class QuickSpanExporter(OTLPSpanExporter):
    """Sends spans over gRPC as its base does, which has no public way to choose the encoder."""

    def _translate_data(self, data: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
        return encode(data)


def encode(spans: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
    """Return the message with which OpenTelemetry's exporters send ``spans``."""
    groups = defaultdict[tuple[int, int], list[ReadableSpan]](list)
    for span in spans:
        groups[id(span.resource), id(span.instrumentation_scope)].append(span)
    request = ExportTraceServiceRequest()
    for first, *others in groups.values():
        # The resource and the scope are those of the first span.
        request.MergeFrom(encode_spans([first]))
        into = request.resource_spans[-1].scope_spans[0]
        for span in others:
            _add(into, span)
    return request


def _add(into: ScopeSpans, span: ReadableSpan) -> None:
    context, parent = span.context, span.parent
    try:
        attributes = [_attribute(name, value) for name, value in (span.attributes or {}).items()]
    except (TypeError, ValueError):
        attributes = None
    if attributes is None or span.events or span.links or context is None or context.trace_state:
        into.MergeFrom(_only_span(span))  # seldom: left to OpenTelemetry
        return
    into.spans.add(
        trace_id=context.trace_id.to_bytes(16, "big"),
        span_id=context.span_id.to_bytes(8, "big"),
        parent_span_id=b"" if parent is None else parent.span_id.to_bytes(8, "big"),
        name=span.name,
        kind=span.kind.value + 1,
        start_time_unix_nano=span.start_time,
        end_time_unix_nano=span.end_time,
        attributes=attributes,
        status=_status(span.status.status_code, span.status.description),
        dropped_attributes_count=span.dropped_attributes,
        flags=_REMOTE if parent is not None and parent.is_remote else _LOCAL,
    )


def _only_span(span: ReadableSpan) -> ScopeSpans:
    return ScopeSpans(spans=encode_spans([span]).resource_spans[0].scope_spans[0].spans)


def _attribute(name: str, value: AttributeValue) -> KeyValue:
    kind: object = type(value)
    if kind is tuple and isinstance(value, tuple):
        kinds = frozenset(map(type, value))
        return _known(name, kinds, value) if kinds in _EXACT else _made(name, value)
    return _made(name, value) if kind is float else _known(name, kind, value)


def _made(name: str, value: AttributeValue) -> KeyValue:
    return KeyValue(key=name, value=_value(value))


@lru_cache(maxsize=8192)
def _known(name: str, kind: object, value: AttributeValue) -> KeyValue:  # noqa: ARG001
    """Return an attribute whose value is likely to come again; ``kind`` tells 1 from True."""
    return _made(name, value)


def _value(value: AttributeValue | None) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case str():
            return AnyValue(string_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case list() | tuple():
            return AnyValue(array_value=ArrayValue(values=[_value(each) for each in value]))
    raise TypeError(f"{value!r} is left to OpenTelemetry")


@lru_cache
def _status(code: StatusCode, description: str | None) -> Status:
    return Status(code=_CODES[code], message=description or "")
