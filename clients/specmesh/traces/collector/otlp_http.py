"""The receiver of OTLP over HTTP: protobuf or JSON, plain or gzipped."""

from __future__ import annotations

import asyncio
import gzip
import io
import zlib

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from specmesh.traces.collector.otlp_grpc import MAX_MESSAGE_BYTES, Take
from specmesh.traces.formats.errors import UnreadableTraces
from specmesh.traces.formats.otlp import groups_from_json

PROTOBUF = "application/x-protobuf"
JSON = "application/json"


class _Refused(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def make_app(take: Take) -> Starlette:
    """Make the application, which serves POST /v1/traces."""

    async def export(request: Request) -> Response:
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            encoding = request.headers.get("content-encoding", "")
            # Beside the event loop, since a body may have millions of members.
            body = await asyncio.to_thread(_decompressed, await _body(request), encoding)
            message = _read(body, media)
        except _Refused as refusal:
            return Response(f"{refusal}\n", refusal.status, media_type="text/plain")
        except ClientDisconnect:
            return Response(status_code=400)
        take(message.resource_spans)
        answer = ExportTraceServiceResponse()
        if media == JSON:
            return Response(MessageToJson(answer), media_type=JSON)
        return Response(answer.SerializeToString(), media_type=PROTOBUF)

    return Starlette(routes=[Route("/v1/traces", export, methods=["POST"])])


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_MESSAGE_BYTES:
            raise _too_large()
    return bytes(body)


def _decompressed(body: bytes, encoding: str) -> bytes:
    match encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip":
            return _unzipped(body)
    raise _Refused(415, f"content-encoding {encoding!r} is neither gzip nor identity")


def _unzipped(body: bytes) -> bytes:
    """Return the content of a gzip file, which may have several members (RFC 1952)."""
    try:
        plain = gzip.GzipFile(fileobj=io.BytesIO(body)).read(MAX_MESSAGE_BYTES + 1)
    except EOFError as error:
        raise _Refused(400, "the gzipped body is truncated") from error
    except (OSError, zlib.error) as error:
        raise _Refused(400, f"the body is not gzip: {error}") from error
    if len(plain) > MAX_MESSAGE_BYTES:
        raise _too_large()
    return plain


def _read(body: bytes, media: str) -> ExportTraceServiceRequest:
    try:
        if media == PROTOBUF:
            return ExportTraceServiceRequest.FromString(body)
        if media == JSON:
            return ExportTraceServiceRequest(resource_spans=groups_from_json(body))
    except (DecodeError, UnreadableTraces) as error:
        raise _Refused(400, f"the body is not an ExportTraceServiceRequest: {error}") from error
    raise _Refused(415, f"content-type {media!r} is neither {PROTOBUF} nor {JSON}")


def _too_large() -> _Refused:
    return _Refused(413, f"the body has more than {MAX_MESSAGE_BYTES} bytes")
