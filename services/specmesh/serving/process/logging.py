"""Structured logs: one JSON object per line on stderr, on top of the standard library's logging.

``log.info("serving", extra={"address": address})`` gives
``{"time": ..., "level": "info", "event": "serving", "role": ..., "name": ..., "address": ...}``,
with ``trace_id`` and ``span_id`` inside a span and ``exception`` inside a handler.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime

from opentelemetry import trace

_LIBRARIES = ("grpc", "opentelemetry", "sse_starlette", "uvicorn")
_LIBRARY_INTERVAL_S = 60.0
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str, role: str, name: str) -> None:
    """Log from ``level`` up, as instance ``name`` of ``role``. Replaces earlier handlers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(role, name))
    handler.addFilter(QuietLibraries())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)


def take_over(library: str) -> None:
    """Remove the handlers that ``library`` gave its loggers, so that they log like all others; it
    must have been imported."""
    for name, logger in list(logging.root.manager.loggerDict.items()):
        is_its = name == library or name.startswith(f"{library}.")
        if is_its and isinstance(logger, logging.Logger) and logger.handlers:
            logger.handlers.clear()
            logger.propagate = True


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def __init__(self, role: str, name: str) -> None:
        super().__init__()
        self._process = {"role": role, "name": name}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a line break."""
        moment = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **self._process,
        }
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            fields["trace_id"] = trace.format_trace_id(span.trace_id)
            fields["span_id"] = trace.format_span_id(span.span_id)
        fields |= {
            key: value
            for key, value in vars(record).items()
            if key not in _STANDARD_FIELDS and not key.startswith("_")  # Ray adds private ones
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


class QuietLibraries(logging.Filter):
    """Limits libraries to warnings and worse, each at most once a minute.

    Otherwise an exporter without a collector would fill the log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last_logged: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record is to be logged."""
        if record.name.partition(".")[0] not in _LIBRARIES:
            return True
        if record.levelno < logging.WARNING:
            return False
        # Keyed by the line of code, since the text varies.
        line = (record.pathname, record.lineno)
        now = time.monotonic()
        if now - self._last_logged.get(line, -_LIBRARY_INTERVAL_S) < _LIBRARY_INTERVAL_S:
            return False
        self._last_logged[line] = now
        return True
