"""Tempo's JSON of one trace: OTLP's messages under other names.

``GET /api/traces/ID`` calls the list ``batches``, ``GET /api/v2/traces/ID`` puts it into
``trace``; older versions write ``instrumentationLibrarySpans`` instead of ``scopeSpans``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from specmesh.traces.formats.errors import UnreadableTraces
from specmesh.traces.formats.otlp import groups_from

_OLD_SCOPES = "instrumentationLibrarySpans"


def is_tempos(document: Mapping[str, Any]) -> bool:
    """Return whether ``document`` is Tempo's."""
    return "batches" in document or "trace" in document


def groups_from_tempo(document: Mapping[str, Any]) -> list[ResourceSpans]:
    """Return the spans of a parsed document. Raises UnreadableTraces."""
    trace = document.get("trace", document)
    try:
        groups = trace.get("batches") or trace.get("resourceSpans") or []
        for group in groups:
            if _OLD_SCOPES in group:
                group["scopeSpans"] = group.pop(_OLD_SCOPES)
    except (AttributeError, TypeError) as error:
        raise UnreadableTraces(f"not a trace in Tempo's format: {error}") from error
    return groups_from({"resourceSpans": groups})
