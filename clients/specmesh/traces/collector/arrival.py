"""Spans on their way through the collector: serialised, with the facts that sampling needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from specmesh.serving.conventions import ERROR_TYPE, HTTP_STATUS, RPC_STATUS, STRATEGY
from specmesh.traces.collector.sampling import RootFacts
from specmesh.traces.spans import wrong_id
from specmesh.traces.statuses import is_failure

_DECIDING = frozenset({RPC_STATUS, HTTP_STATUS, ERROR_TYPE, STRATEGY})


@dataclass(frozen=True, slots=True)
class ArrivedSpan:
    """One span. It is kept as bytes, so that it does not keep its whole message in memory."""

    trace_id: bytes
    resource: bytes
    scope: bytes
    span: bytes
    is_root: bool
    has_ids: bool
    """True if its id and its trace's can be those of a span."""
    facts: RootFacts
    """The facts for sampling, as if it were the root."""

    @property
    def num_bytes(self) -> int:
        """Its size. Spans of a message share their resource and scope, but one may be alone."""
        return len(self.resource) + len(self.scope) + len(self.span)


def arrivals(groups: Iterable[ResourceSpans]) -> Iterator[ArrivedSpan]:
    """Yield the spans of an OTLP message."""
    for group in groups:
        resource = group.resource.SerializeToString()
        for scope_spans in group.scope_spans:
            scope = scope_spans.scope.SerializeToString()
            for span in scope_spans.spans:
                yield ArrivedSpan(
                    trace_id=span.trace_id,
                    resource=resource,
                    scope=scope,
                    span=span.SerializeToString(),
                    is_root=not span.parent_span_id,
                    has_ids=not wrong_id(span),
                    facts=_facts(span),
                )


def put_together(arrived: Iterable[ArrivedSpan]) -> list[ResourceSpans]:
    """Rebuild the OTLP message of spans that ``arrivals`` took apart."""
    grouped: dict[bytes, dict[bytes, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    for each in arrived:
        grouped[each.resource][each.scope].append(each.span)
    groups = []
    for resource, scopes in grouped.items():
        group = ResourceSpans(resource=Resource.FromString(resource))
        for scope, spans in scopes.items():
            group.scope_spans.add(
                scope=InstrumentationScope.FromString(scope),
                spans=map(trace_pb2.Span.FromString, spans),
            )
        groups.append(group)
    return groups


def _facts(span: trace_pb2.Span) -> RootFacts:
    told: dict[str, AnyValue] = {}
    # Those of a caller that sends its own trace context have a parent, and may be all there is.
    if not span.parent_span_id or span.kind == trace_pb2.Span.SPAN_KIND_SERVER:
        told = {pair.key: pair.value for pair in span.attributes if pair.key in _DECIDING}
    is_error = span.status.code == trace_pb2.Status.STATUS_CODE_ERROR
    return RootFacts(
        kind=f"{span.name} {_text(told, STRATEGY)}",
        duration_ms=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e6,
        failed=is_error
        or is_failure(
            _text(told, RPC_STATUS),
            told[HTTP_STATUS].int_value if HTTP_STATUS in told else 0,
            _text(told, ERROR_TYPE),
        ),
    )


def _text(told: Mapping[str, AnyValue], name: str) -> str:
    return told[name].string_value if name in told else ""
