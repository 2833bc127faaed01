"""What one request of a call that carries many (GenerateMany) says beside the request itself."""

from __future__ import annotations

from specmesh.decoding.errors import InvalidField
from specmesh.serving.rpc.intake import MAX_METADATA_BYTES
from specmesh.serving.rpc.observed_request import Context
from specmesh.serving.rpc.one_of_many import OneWithMetadata
from specmesh.v1 import generation_pb2

_BINARY = "-bin"
"""The end of keys whose values are bytes, as in gRPC's metadata."""


def one_of_many(context: Context, request: generation_pb2.GenerateEachRequest) -> OneWithMetadata:
    """Return the context of a request of the call that ``context`` belongs to. Raises
    ``InvalidField``."""
    method = {"generate": "Generate", "resume": "Resume"}.get(request.WhichOneof("request") or "")
    if method is None:
        raise InvalidField("request", "must be set")
    return OneWithMetadata(context, method, _metadata(request), _timeout_s(request))


def _metadata(request: generation_pb2.GenerateEachRequest) -> list[tuple[str, str | bytes]]:
    given = request.metadata
    num_bytes = sum(len(key) + len(value) for key, value in given.items())
    if num_bytes > MAX_METADATA_BYTES:
        reason = f"has {num_bytes} bytes; the limit is {MAX_METADATA_BYTES}"
        raise InvalidField("metadata", reason)
    return [(key, _read(key, value)) for key, value in given.items()]


def _read(key: str, value: bytes) -> str | bytes:
    if key.endswith(_BINARY):
        return value
    try:
        return value.decode("ascii")
    except UnicodeDecodeError:
        reason = f"the value of {key!r} must be ASCII; a key that ends in {_BINARY!r} takes bytes"
        raise InvalidField("metadata", reason) from None


def _timeout_s(request: generation_pb2.GenerateEachRequest) -> float | None:
    if not request.HasField("timeout"):
        return None
    timeout_s = request.timeout.seconds + request.timeout.nanos / 1e9
    if timeout_s < 0:
        raise InvalidField("timeout", "must not be negative")
    return timeout_s
