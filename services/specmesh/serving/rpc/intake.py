"""From a request's bytes to its message; what is too large, or no message, or has fields that this
process does not know, is refused with a reason.

gRPC itself refuses either with a bare status, and would parse a message of any size on the event
loop. So its own limits are wider than these.
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
"""Limits the bytes of all requests that a process has accepted and not answered yet, unless it is
told another bound."""
MAX_METADATA_BYTES = 16 * 2**10
RETRY_SECONDS = 1.0


class Arrival:
    """A request as its bytes, which are read once its caller has been let in.

    A deserializer cannot do that: gRPC calls it first of all, and what it raises ends the call as
    UNKNOWN.
    """

    __slots__ = ("_data", "_deserialize", "num_bytes")

    def __init__(self, data: bytes, deserialize: Callable[[bytes], Any] | None) -> None:
        self._data = data
        self._deserialize = deserialize
        self.num_bytes = len(data)

    def read(self) -> Any:
        """The message, once; the bytes are let go. Raises ``InvalidArgument``."""
        data, self._data = self._data, b""
        try:
            message = self._deserialize(data) if self._deserialize else data
        except DecodeError:
            raise InvalidArgument(
                "UNDECODABLE", "these bytes are no message of this method"
            ) from None
        if isinstance(message, Message):
            path = unknown_field(message, data)
            if path is not None:
                raise _does_not_know(path)
        return message


class Intake:
    """Accepts the requests of one server.

    Invariant: those between ``hold`` and ``release`` have ``max_held_bytes`` at most.
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
        """What gRPC takes for ``deserialize``, which ``hold`` calls later; without one, bytes are
        the message."""
        return lambda data: Arrival(data, deserialize)

    def hold(self, arrival: Arrival) -> Any:
        """The message, whose bytes count until ``release``. Raises ``InvalidArgument`` for what is
        too large or no message, and ``ResourceExhaustedStatus`` if too many bytes are held."""
        num_bytes = arrival.num_bytes
        if num_bytes > self._max_bytes:
            raise InvalidArgument(
                "MESSAGE_TOO_LARGE",
                f"{num_bytes} bytes are more than the {self._max_bytes} of a request",
                {"num_bytes": str(num_bytes), "max_bytes": str(self._max_bytes)},
            )
        if self._num_held + num_bytes > self._max_held:
            raise ResourceExhaustedStatus(
                "OVERLOADED",
                f"requests of {self._num_held} bytes are being answered already",
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
        f"a field is set that this server does not know: {path or 'deep in the request'}",
        {"field": path},
    )


def check_metadata(metadata: Any) -> None:
    """Raise ``InvalidArgument`` for more than gRPC promises to carry everywhere."""
    num_bytes = sum(len(key) + len(value) for key, value in metadata or ())
    if num_bytes > MAX_METADATA_BYTES:
        raise InvalidArgument(
            "METADATA_TOO_LARGE",
            f"{num_bytes} bytes of metadata are more than {MAX_METADATA_BYTES}",
            {"num_bytes": str(num_bytes), "max_bytes": str(MAX_METADATA_BYTES)},
        )
