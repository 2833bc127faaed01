"""An OTLP/gRPC receiver for one machine, to be set as OTEL_EXPORTER_OTLP_ENDPOINT."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

from specmesh.traces.formats.otlp import to_line
from specmesh.traces.spans import Span, spans_from


class TraceReceiver(TraceServiceServicer):
    """A receiver that keeps every span in memory and optionally in a file of OTLP JSON lines.

    It listens on a free loopback port while its ``async with`` block runs; ``endpoint`` is its URL.
    """

    def __init__(self, json_file: Path | None = None) -> None:
        self.spans: list[Span] = []
        self.endpoint = ""
        self._json_file = json_file
        self._server: grpc.aio.Server | None = None

    async def Export(  # noqa: N802
        self,
        request: ExportTraceServiceRequest,
        context: grpc.aio.ServicerContext[  # noqa: ARG002
            ExportTraceServiceRequest, ExportTraceServiceResponse
        ],
    ) -> ExportTraceServiceResponse:
        """Receive the spans that an exporter sends."""
        if self._json_file is not None:
            with self._json_file.open("a") as file:
                file.write(to_line(request.resource_spans) + "\n")
        self.spans += spans_from(request.resource_spans)
        return ExportTraceServiceResponse()

    async def __aenter__(self) -> Self:
        self._server = grpc.aio.server()
        add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
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
