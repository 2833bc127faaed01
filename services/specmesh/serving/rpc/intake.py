"""Parsing of requests. A request that is too large, malformed, or has unknown fields is refused
with a reason.

gRPC itself would refuse it without a reason. Its own size limits are therefore wider than these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError, Message

from specmesh.serving.errors import InvalidArgument, ResourceExhaustedStatus
from specmesh.serving.rpc.unknown_fields import unknown_field

MAX_REQUEST_BYTES = 32 * 2**20
"""Room for the sparse distributions of a wide tree over a large vocabulary."""
MAX_HELD_BYTES = 256 * 2**20
"""The default limit on the bytes of all requests that a process is answering."""
MAX_METADATA_BYTES = 16 * 2**10
RETRY_SECONDS = 1.0


class Arrival:
    """The bytes of a request, which are parsed only after its caller has been admitted.

    A gRPC deserializer can't do that: gRPC calls it before anything else, and an error in it ends
    the call with UNKNOWN.
    """

    __slots__ = ("_data", "_deserialize", "num_bytes")

    def __init__(self, data: bytes, deserialize: Callable[[bytes], Any] | None) -> None:
        self._data = data
        self._deserialize = deserialize
        self.num_bytes = len(data)

    def read(self) -> Any:
        """Parse the message and drop the bytes; call this once. Raises ``InvalidArgument``."""
        data, self._data = self._data, b""
        try:
            message = self._deserialize(data) if self._deserialize else data
        except DecodeError:
            raise InvalidArgument(
                "UNDECODABLE", "the request can't be parsed as a message of this method"
            ) from None
        if isinstance(message, Message):
            path = unknown_field(message, data)
            if path is not None:
                raise _does_not_know(path)
        return message


class Intake:
    """Accepts the requests of one server.

    Invariant: requests between ``hold`` and ``release`` have at most ``max_held_bytes``.
    """

    def __init__(
        self, max_request_bytes: int = MAX_REQUEST_BYTES, max_held_bytes: int = MAX_HELD_BYTES
    ) -> None:
        self._max_bytes = max_request_bytes
        self._max_held = max_held_bytes
        self._num_held = 0

    def deserializer(
        self, deserialize: Callable[[bytes], Any] | None
    ) -> Callable[[bytes], Arrival]:
        """Return the deserializer to pass to gRPC: ``hold`` calls ``deserialize`` later. If that is
        None, the message is the bytes."""
        return lambda data: Arrival(data, deserialize)

    def hold(self, arrival: Arrival) -> Any:
        """Return the message and count its bytes until ``release``. Raises ``InvalidArgument`` if
        it is too large or invalid, ``ResourceExhaustedStatus`` if too many bytes are held."""
        num_bytes = arrival.num_bytes
        if num_bytes > self._max_bytes:
            raise InvalidArgument(
                "MESSAGE_TOO_LARGE",
                f"the request has {num_bytes} bytes; the limit is {self._max_bytes}",
                {"num_bytes": str(num_bytes), "max_bytes": str(self._max_bytes)},
            )
        if self._num_held + num_bytes > self._max_held:
            raise ResourceExhaustedStatus(
                "OVERLOADED",
                f"the requests being answered already hold {self._num_held} bytes",
                retry_after_s=RETRY_SECONDS,
            )
        message = arrival.read()
        self._num_held += num_bytes
        return message

    def release(self, arrival: Arrival) -> None:
        """Stop counting a request that ``hold`` has accepted."""
        self._num_held -= arrival.num_bytes


def _does_not_know(path: str) -> InvalidArgument:
    return InvalidArgument(
        "UNKNOWN_FIELD",
        f"the request sets a field that this server does not know: {path or 'a nested one'}",
        {"field": path},
    )


def check_metadata(metadata: Any) -> None:
    """Raise ``InvalidArgument`` for metadata above ``MAX_METADATA_BYTES``."""
    num_bytes = sum(len(key) + len(value) for key, value in metadata or ())
    if num_bytes > MAX_METADATA_BYTES:
        raise InvalidArgument(
            "METADATA_TOO_LARGE",
            f"the metadata has {num_bytes} bytes; the limit is {MAX_METADATA_BYTES}",
            {"num_bytes": str(num_bytes), "max_bytes": str(MAX_METADATA_BYTES)},
        )
