"""The spans of one trace as bytes: OTLP's own message, compressed.

So everything that a process sent is kept, even fields that this version does not read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, TracesData

_LEVEL = 1
"""Compression level; since spans are repetitive, higher levels take three times as long to save a
tenth."""


class DamagedBlob(Exception):
    """A blob that ``pack`` did not make, or not all of it."""


def distinct(groups: Iterable[ResourceSpans]) -> list[ResourceSpans]:
    """Return ``groups`` without repeated spans; the first one of each id stays."""
    seen: set[tuple[bytes, bytes]] = set()
    kept = []
    for group in groups:
        left = ResourceSpans(resource=group.resource, schema_url=group.schema_url)
        for scope in group.scope_spans:
            fresh = []
            for span in scope.spans:
                key = (span.trace_id, span.span_id)
                if key not in seen:
                    seen.add(key)
                    fresh.append(span)
            if fresh:
                left.scope_spans.add(scope=scope.scope, schema_url=scope.schema_url, spans=fresh)
        if left.scope_spans:
            kept.append(left)
    return kept


def pack(groups: Iterable[ResourceSpans]) -> bytes:
    """Return the blob of ``groups``."""
    return zlib.compress(TracesData(resource_spans=groups).SerializeToString(), _LEVEL)


def unpack(blob: bytes) -> TracesData:
    """Return the message in a blob that ``pack`` made, which has spans. Raises DamagedBlob."""
    try:
        found = TracesData.FromString(zlib.decompress(blob))
    except (zlib.error, DecodeError) as error:
        raise DamagedBlob(str(error)) from error
    if not any(scope.spans for group in found.resource_spans for scope in group.scope_spans):
        raise DamagedBlob("it has no spans")
    return found
