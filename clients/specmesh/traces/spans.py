"""The spans of this package: small frozen values, no protobuf."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from specmesh.serving.conventions import CANCELLED, QUEUE_MS

_TOO_MUCH = 2**63
"""More than any time in ms or count, from where on sums of them would not be finite."""

AttributeValue = str | bool | int | float | tuple["AttributeValue", ...]


class SpanKind(Enum):
    """The end of a call that a span records, if any."""

    INTERNAL = "internal"
    SERVER = "server"
    CLIENT = "client"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Node:
    """The process that recorded a span: ``service.name`` and ``service.instance.id``."""

    service: str
    instance: str

    @property
    def label(self) -> str:
        """The name to show: the instance, else the service."""
        return self.instance or self.service or "?"


@dataclass(frozen=True, slots=True)
class Span:
    """One span; ids are in lower-case hex, times in nanoseconds since 1970."""

    trace_id: str
    span_id: str
    parent_span_id: str
    """Empty for a root."""
    name: str
    kind: SpanKind
    node: Node
    start_ns: int
    end_ns: int
    attributes: Mapping[str, AttributeValue]
    is_error: bool
    message: str = ""
    """The message of its status, for people."""

    @property
    def duration_ms(self) -> float:
        """The duration: end minus start."""
        return (self.end_ns - self.start_ns) / 1e6

    @property
    def left_queue_ns(self) -> int:
        """The time when its work began; a server's call may have waited in a queue first."""
        return self.start_ns + int(self.number(QUEUE_MS) * 1e6)

    @property
    def was_cancelled(self) -> bool:
        """True for a call that was cancelled on purpose."""
        return self.attributes.get(CANCELLED) is True

    def number(self, name: str) -> float:
        """Return the value of a numeric attribute; 0 if ``maybe_number`` finds none."""
        return self.maybe_number(name) or 0.0

    def maybe_number(self, name: str) -> float | None:
        """Return the value of a numeric attribute, such as a time or a count; None if the span has
        none of that name, or one that is no such amount: negative, infinite or not a number."""
        value = self.attributes.get(name)
        return float(value) if isinstance(value, int | float) and 0 <= value < _TOO_MUCH else None

    def text(self, name: str) -> str:
        """Return the value of a string attribute; empty if the span has none of that name."""
        value = self.attributes.get(name)
        return value if isinstance(value, str) else ""

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return the integers of a list attribute; empty if the span has none of that name."""
        value = self.attributes.get(name)
        listed = value if isinstance(value, tuple) else ()
        return tuple(each for each in listed if isinstance(each, int))


_KINDS = {
    trace_pb2.Span.SPAN_KIND_INTERNAL: SpanKind.INTERNAL,
    trace_pb2.Span.SPAN_KIND_SERVER: SpanKind.SERVER,
    trace_pb2.Span.SPAN_KIND_CLIENT: SpanKind.CLIENT,
}


def wrong_id(span: trace_pb2.Span) -> str:
    """Return what is wrong with the id of a span or of its trace, without which it can't be found;
    empty if both are right."""
    for name, value, size in (("traceId", span.trace_id, 16), ("spanId", span.span_id, 8)):
        if len(value) != size:
            return f"{name} '{value.hex()}' has {len(value)} bytes, not {size}"
    return ""


def by_trace(spans: Iterable[Span]) -> list[list[Span]]:
    """Group spans by trace."""
    traces: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        traces[span.trace_id].append(span)
    return list(traces.values())


def root_of(spans: Sequence[Span]) -> Span:
    """Return the longest span without a known parent; if spans were lost there may be several.
    Malformed spans may be each other's parents: if all have one, the longest of all counts."""
    known = {span.span_id for span in spans}
    roots = [span for span in spans if span.parent_span_id not in known] or spans
    return max(roots, key=lambda span: span.duration_ms)


def without_cycles(spans: Sequence[Span]) -> list[Span]:
    """Return ``spans`` with one span of each cycle, which malformed spans may form, as a root."""
    parents = {span.span_id: span.parent_span_id for span in spans}
    seen: set[str] = set()
    roots: set[str] = set()
    for span in spans:
        path: set[str] = set()
        at = span.span_id
        while at in parents and at not in seen:
            seen.add(at)
            path.add(at)
            at = parents[at]
        if at in path:
            roots.add(at)
    return [replace(span, parent_span_id="") if span.span_id in roots else span for span in spans]


def servers_of(spans: Iterable[Span]) -> Mapping[str, Sequence[Span]]:
    """Return the SERVER spans of each call, by the id of the caller's span."""
    servers: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.kind is SpanKind.SERVER:
            servers[span.parent_span_id].append(span)
    return servers


def spans_from(resource_spans: Iterable[trace_pb2.ResourceSpans]) -> Iterator[Span]:
    """Yield all spans of an OTLP message."""
    for group in resource_spans:
        node = _node_from(group.resource)
        for scope in group.scope_spans:
            for span in scope.spans:
                yield _span_from(span, node)


def _node_from(resource: Resource) -> Node:
    attributes = _attributes_from(resource.attributes)
    return Node(
        str(attributes.get("service.name", "")), str(attributes.get("service.instance.id", ""))
    )


def _span_from(span: trace_pb2.Span, node: Node) -> Span:
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex(),
        name=span.name,
        kind=_KINDS.get(span.kind, SpanKind.OTHER),
        node=node,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_attributes_from(span.attributes),
        is_error=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        message=span.status.message,
    )


def _attributes_from(pairs: Sequence[KeyValue]) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    for pair in pairs:
        value = _value_from(pair.value)
        if value is not None:
            found[pair.key] = value
    return found


_PLAIN = frozenset({"string_value", "bool_value", "int_value", "double_value"})


def _value_from(value: AnyValue) -> AttributeValue | None:
    """Return the value; None for types that specmesh does not use (bytes, maps)."""
    kind = value.WhichOneof("value")
    if kind in _PLAIN:
        plain: str | bool | int | float = getattr(value, kind)
        return plain
    if kind == "array_value":
        items = map(_value_from, value.array_value.values)
        return tuple(item for item in items if item is not None)
    return None
