"""OTLP's JSON, which the OpenTelemetry Collector, Jaeger and others read and write.

Unlike Protobuf's JSON, OTLP writes ids in hex instead of base64; Tempo keeps base64. The two have
different lengths, so both can be read. Enums may be numbers or names.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, TracesData

from specmesh.traces.formats.errors import UnreadableTraces

_ID_BYTES = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def to_document(groups: Iterable[ResourceSpans]) -> dict[str, Any]:
    """Return ``groups`` as an OTLP JSON object."""
    document = MessageToDict(TracesData(resource_spans=groups), use_integers_for_enums=True)
    for element in _with_ids(document.get("resourceSpans", ())):
        for name in _ID_BYTES.keys() & element.keys():
            element[name] = base64.b64decode(element[name]).hex()
    return document


def to_line(groups: Iterable[ResourceSpans]) -> str:
    """Return ``groups`` as one line of OTLP JSON, without the line end."""
    return json.dumps(to_document(groups), separators=(",", ":"))


def groups_from_json(text: bytes) -> list[ResourceSpans]:
    """Parse an OTLP JSON object. Raises UnreadableTraces."""
    return groups_from(document_from(text))


def document_from(text: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises UnreadableTraces."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UnreadableTraces(f"not JSON: {error}") from error
    except RecursionError as error:
        raise UnreadableTraces("the JSON is nested too deeply") from error
    if not isinstance(document, dict):
        raise UnreadableTraces("not a JSON object")
    return document


def groups_from(document: Mapping[str, Any]) -> list[ResourceSpans]:
    """Return the spans of a parsed OTLP JSON object, which is modified. Raises UnreadableTraces."""
    groups = document.get("resourceSpans", [])
    try:
        for element in _with_ids(groups):
            for name in _ID_BYTES.keys() & element.keys():
                element[name] = _base64(name, element[name])
        message = ParseDict({"resourceSpans": groups}, TracesData(), ignore_unknown_fields=True)
    except (ParseError, AttributeError, TypeError) as error:
        raise UnreadableTraces(str(error)) from error
    return list(message.resource_spans)


def _with_ids(groups: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the spans and their links."""
    for group in groups:
        for scope in group.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                yield span
                yield from span.get("links", ())


def _base64(name: str, written: str) -> str:
    """Convert an id from hex or base64 to base64."""
    size = _ID_BYTES[name]
    try:
        is_hex = len(written) == 2 * size
        read = bytes.fromhex(written) if is_hex else base64.b64decode(written, validate=True)
    except (ValueError, binascii.Error) as error:
        raise UnreadableTraces(f"{name} {written!r} is neither hex nor base64") from error
    if len(read) not in {0, size}:
        raise UnreadableTraces(f"{name} {written!r} has {len(read)} bytes, not {size}")
    return base64.b64encode(read).decode()
