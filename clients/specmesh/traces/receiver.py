"""An OTLP/gRPC receiver for one machine, to be set as OTEL_EXPORTER_OTLP_ENDPOINT."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from specmesh.traces.collector import otlp_grpc
from specmesh.traces.formats.otlp import to_line
from specmesh.traces.spans import Span, spans_from


class TraceReceiver:
    """A receiver that keeps every span in memory and optionally in a file of OTLP JSON lines.

    It listens on a free loopback port while its ``async with`` block runs; ``endpoint`` is its URL.
    """

    def __init__(self, json_file: Path | None = None) -> None:
        self.spans: list[Span] = []
        self.endpoint = ""
        self._json_file = json_file
        self._server: grpc.aio.Server | None = None

    def _take(self, resource_spans: Iterable[ResourceSpans]) -> None:
        if self._json_file is not None:
            with self._json_file.open("a") as file:
                file.write(to_line(resource_spans) + "\n")
        self.spans += spans_from(resource_spans)

    async def __aenter__(self) -> Self:
        self._server, port = await otlp_grpc.start(self._take, "127.0.0.1:0")
        self.endpoint = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server is not None:
            await self._server.stop(grace=1)
