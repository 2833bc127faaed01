"""OTLP as JSON lines, the format that trace viewers and the OpenTelemetry Collector read."""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_IDS = ("traceId", "spanId", "parentSpanId")


def to_line(request: ExportTraceServiceRequest) -> str:
    """One line, without its end. OTLP writes enums as numbers and ids in hex, not base64."""
    message = MessageToDict(request, use_integers_for_enums=True)
    for resource in message.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                _ids_to_hex(span)
                for link in span.get("links", ()):
                    _ids_to_hex(link)
    return json.dumps(message, separators=(",", ":"))


def _ids_to_hex(element: dict[str, Any]) -> None:
    for name in _IDS:
        if name in element:
            element[name] = base64.b64decode(element[name]).hex()
