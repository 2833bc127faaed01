"""Jaeger's JSON, as ``GET /api/traces`` returns it and the UI saves it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from specmesh.serving.conventions import SERVICE_NAME
from specmesh.traces.formats.errors import UnreadableTraces

_KINDS = {
    "internal": trace_pb2.Span.SPAN_KIND_INTERNAL,
    "server": trace_pb2.Span.SPAN_KIND_SERVER,
    "client": trace_pb2.Span.SPAN_KIND_CLIENT,
    "producer": trace_pb2.Span.SPAN_KIND_PRODUCER,
    "consumer": trace_pb2.Span.SPAN_KIND_CONSUMER,
}
_STATUSES = {
    "OK": trace_pb2.Status.STATUS_CODE_OK,
    "ERROR": trace_pb2.Status.STATUS_CODE_ERROR,
}
_KIND, _ERROR = "span.kind", "error"
_STATUS, _DESCRIPTION = "otel.status_code", "otel.status_description"
_OWN = "specmesh."
"""Prefix of attributes whose lists are restored: Jaeger has no lists and stores them as texts."""
_NS_PER_US = 1000


def is_jaegers(document: Mapping[str, Any]) -> bool:
    """Return whether ``document`` is Jaeger's."""
    return "data" in document


def groups_from_jaeger(document: Mapping[str, Any]) -> list[ResourceSpans]:
    """Return a parsed document's spans, grouped by process. Raises UnreadableTraces."""
    try:
        return [group for trace in document["data"] for group in _groups(trace)]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnreadableTraces(f"not a trace in Jaeger's format: {error!r}") from error


def _groups(trace: Mapping[str, Any]) -> Iterator[ResourceSpans]:
    groups: dict[str, ResourceSpans] = {}
    for name, process in trace.get("processes", {}).items():
        group = ResourceSpans()
        group.resource.attributes.append(_attribute(SERVICE_NAME, process.get("serviceName", "")))
        group.resource.attributes.extend(_attributes(process.get("tags") or ()))
        group.scope_spans.add()
        groups[name] = group
    for span in trace["spans"]:
        groups[span["processID"]].scope_spans[0].spans.append(_span(span))
    yield from (group for group in groups.values() if group.scope_spans[0].spans)


def _span(span: Mapping[str, Any]) -> trace_pb2.Span:
    tags = {tag["key"]: tag["value"] for tag in span.get("tags") or ()}
    start_ns = int(span["startTime"]) * _NS_PER_US
    read = trace_pb2.Span(
        trace_id=_id(span["traceID"], 16),
        span_id=_id(span["spanID"], 8),
        name=span.get("operationName", ""),
        kind=_KINDS.get(str(tags.get(_KIND, "internal")), trace_pb2.Span.SPAN_KIND_UNSPECIFIED),
        start_time_unix_nano=start_ns,
        end_time_unix_nano=start_ns + int(span["duration"]) * _NS_PER_US,
        attributes=_attributes(span.get("tags") or ()),
        status=_status(tags),
    )
    for reference in span.get("references") or ():
        same = _id(reference["traceID"], 16) == read.trace_id
        if same and reference.get("refType") == "CHILD_OF" and not read.parent_span_id:
            read.parent_span_id = _id(reference["spanID"], 8)
        else:
            read.links.add(
                trace_id=_id(reference["traceID"], 16), span_id=_id(reference["spanID"], 8)
            )
    for entry in span.get("logs") or ():
        fields = entry.get("fields") or ()
        names = (str(field["value"]) for field in fields if field["key"] == "event")
        read.events.add(
            time_unix_nano=int(entry["timestamp"]) * _NS_PER_US,
            name=next(names, ""),
            attributes=_attributes(field for field in fields if field["key"] != "event"),
        )
    return read


def _status(tags: Mapping[str, Any]) -> trace_pb2.Status:
    code = _STATUSES.get(str(tags.get(_STATUS, "")), trace_pb2.Status.STATUS_CODE_UNSET)
    if tags.get(_ERROR) in {True, "true"}:
        code = trace_pb2.Status.STATUS_CODE_ERROR
    return trace_pb2.Status(code=code, message=str(tags.get(_DESCRIPTION, "")))


def _id(written: str, size: int) -> bytes:
    """Parse an id in hex, of which Jaeger omits leading zeros."""
    return bytes.fromhex(written.zfill(2 * size))


def _attributes(tags: Iterable[Mapping[str, Any]]) -> list[KeyValue]:
    known = {_KIND, _STATUS, _DESCRIPTION, _ERROR}
    return [_attribute(tag["key"], tag["value"]) for tag in tags if tag["key"] not in known]


def _attribute(key: str, value: Any) -> KeyValue:
    if key.startswith(_OWN) and isinstance(value, str) and value.startswith("["):
        listed = json.loads(value)
        return KeyValue(key=key, value=AnyValue(array_value=ArrayValue(values=map(_any, listed))))
    return KeyValue(key=key, value=_any(value))


def _any(value: Any) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
    return AnyValue(string_value=str(value))
