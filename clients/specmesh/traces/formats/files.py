"""A reader of trace files that detects their format."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from specmesh.traces.formats.errors import UnreadableTraces
from specmesh.traces.formats.jaeger import groups_from_jaeger, is_jaegers
from specmesh.traces.formats.otlp import document_from, groups_from
from specmesh.traces.formats.tempo import groups_from_tempo, is_tempos
from specmesh.traces.spans import wrong_id


def read_traces(file: BinaryIO) -> list[list[ResourceSpans]]:
    """Return the spans of each trace in ``file``, which is one JSON document, or one per line.

    Raises UnreadableTraces.
    """
    found: dict[bytes, list[ResourceSpans]] = defaultdict(list)
    for document in _documents(file.read()):
        for group in _groups(document):
            for trace_id, part in _by_trace(group):
                found[trace_id].append(part)
    return list(found.values())


def _documents(text: bytes) -> Iterator[Mapping[str, Any]]:
    first, _, rest = text.lstrip().partition(b"\n")
    if rest.strip() and _is_document(first):
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield _document(line, f"line {number}: ")
    else:
        yield _document(text, "")


def _is_document(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _document(text: bytes, where: str) -> Mapping[str, Any]:
    try:
        return document_from(text)
    except UnreadableTraces as error:
        raise UnreadableTraces(f"{where}{error}") from error


def _groups(document: Mapping[str, Any]) -> list[ResourceSpans]:
    if is_jaegers(document):
        return groups_from_jaeger(document)
    if is_tempos(document):
        return groups_from_tempo(document)
    if "resourceSpans" in document:
        return groups_from(document)
    known = "'resourceSpans' (OTLP), 'data' (Jaeger), 'batches' or 'trace' (Tempo)"
    raise UnreadableTraces(f"the document has none of the keys {known}")


def _by_trace(group: ResourceSpans) -> Iterable[tuple[bytes, ResourceSpans]]:
    """Divide ``group`` by trace. Raises UnreadableTraces."""
    parts: dict[bytes, ResourceSpans] = {}
    for scope in group.scope_spans:
        by_trace = defaultdict(list)
        for span in scope.spans:
            if wrong := wrong_id(span):
                raise UnreadableTraces(f"span {span.name!r}: {wrong}")
            by_trace[span.trace_id].append(span)
        for trace_id, spans in by_trace.items():
            part = parts.setdefault(trace_id, ResourceSpans(resource=group.resource))
            part.scope_spans.add(scope=scope.scope, spans=spans)
    return parts.items()
