"""The receiver of OTLP over gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from specmesh.serving.identity.certificates import (
    TlsFiles,
    server_credentials,
    watched_certificate,
)

Take = Callable[[Iterable[ResourceSpans]], None]
"""A function that receives the spans of a message; it must not block."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024


class _TraceService(TraceServiceServicer):
    def __init__(self, take: Take) -> None:
        self._take = take

    async def Export(  # noqa: N802 - gRPC's name
        self,
        request: ExportTraceServiceRequest,
        context: grpc.aio.ServicerContext[  # noqa: ARG002
            ExportTraceServiceRequest, ExportTraceServiceResponse
        ],
    ) -> ExportTraceServiceResponse:
        self._take(request.resource_spans)
        return ExportTraceServiceResponse()


async def start(
    take: Take, address: str, tls: TlsFiles | None = None
) -> tuple[grpc.aio.Server, int]:
    """Start a server at ``address`` (host:port, 0 for any free port); return it and its port.

    Raises OSError if it can't listen, and UnusableFile for bad TLS files.
    """
    options = (
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.so_reuseport", 0),
    )
    server = grpc.aio.server(options=options, compression=grpc.Compression.NoCompression)
    add_TraceServiceServicer_to_server(_TraceService(take), server)  # type: ignore[no-untyped-call]
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            credentials = server_credentials(
                watched_certificate(tls), require_clients=tls.ca is not None
            )
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {error}") from error
    await server.start()
    return server, port
