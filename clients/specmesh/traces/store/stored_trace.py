"""A trace as the store keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from specmesh.traces.spans import spans_from
from specmesh.traces.store.blob import distinct, pack
from specmesh.traces.summary import TraceSummary, summarise

_MAX_INTEGER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """The summary of a trace, and its spans as a blob."""

    summary: TraceSummary
    blob: bytes

    @classmethod
    def of(cls, groups: Sequence[ResourceSpans]) -> StoredTrace:
        """Make the stored form of ``groups``, which must be of one trace and hold a span.

        Repeated spans are stored once: OTLP delivers at least once, so that exporters repeat what
        arrived unnoticed.
        """
        kept = distinct(groups)
        return cls(summarise(list(spans_from(kept))), pack(kept))

    def row(self) -> tuple[object, ...]:
        """Return the values of ``SUMMARY_COLUMNS``."""
        return tuple(map(_storable, astuple(self.summary)))


def _storable(value: object) -> object:
    """Return ``value``; of an integer that exceeds SQLite's, which spans may have, the nearest, and
    of texts their lines."""
    match value:
        case int():
            return max(-_MAX_INTEGER, min(value, _MAX_INTEGER))
        case tuple():
            return "\n".join(("", *value, "")) if value else ""
    return value
