"""From a request's bytes to its message; what is too large, or no message, is refused with a
reason.

gRPC itself refuses either with a bare status, and would parse a message of any size on the event
loop. So its own limits are wider than these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from specmesh.serving.errors import InvalidArgument, ResourceExhausted

MAX_REQUEST_BYTES = 32 * 2**20
"""Room for the sparse distributions of a wide tree over a large vocabulary."""
MAX_HELD_BYTES = 256 * 2**20
"""Limits the bytes of all requests that a process has accepted and not answered yet."""
MAX_METADATA_BYTES = 16 * 2**10
RETRY_SECONDS = 1.0


class Received(NamedTuple):
    """A decoded request and its size as it was sent."""

    message: Any
    num_bytes: int


Taken: TypeAlias = Received | InvalidArgument
"""An error is returned here and raised later, where the peer can be told: one that a deserializer
raises ends the call as UNKNOWN."""


class Intake:
    """Accepts the requests of one server.

    Invariant: those between ``hold`` and ``release`` have ``MAX_HELD_BYTES`` at most.
    """

    def __init__(self, max_request_bytes: int = MAX_REQUEST_BYTES) -> None:
        self._max_bytes = max_request_bytes
        self._num_held = 0

    def deserializer(self, deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Taken]:
        """``deserialize``, but it returns errors; without one, bytes are the message."""

        def taken(data: bytes) -> Taken:
            if len(data) > self._max_bytes:
                return InvalidArgument(
                    "MESSAGE_TOO_LARGE",
                    f"{len(data)} bytes are more than the {self._max_bytes} of a request",
                    {"num_bytes": str(len(data)), "max_bytes": str(self._max_bytes)},
                )
            try:
                return Received(deserialize(data) if deserialize else data, len(data))
            except DecodeError:
                return InvalidArgument("UNDECODABLE", "these bytes are no message of this method")

        return taken

    def hold(self, taken: Taken) -> Any:
        """The message, whose bytes count until ``release``. Raises the error instead if it is one,
        and ``ResourceExhausted`` if too many bytes are held."""
        if isinstance(taken, InvalidArgument):
            raise taken
        if self._num_held + taken.num_bytes > MAX_HELD_BYTES:
            raise ResourceExhausted(
                "OVERLOADED",
                f"requests of {self._num_held} bytes are being answered already",
                retry_after_s=RETRY_SECONDS,
            )
        self._num_held += taken.num_bytes
        return taken.message

    def release(self, taken: Taken) -> None:
        """Stop counting a request that ``hold`` has accepted."""
        assert isinstance(taken, Received)
        self._num_held -= taken.num_bytes


def check_metadata(metadata: Any) -> None:
    """Raise ``InvalidArgument`` for more than gRPC promises to carry everywhere."""
    num_bytes = sum(len(key) + len(value) for key, value in metadata or ())
    if num_bytes > MAX_METADATA_BYTES:
        raise InvalidArgument(
            "METADATA_TOO_LARGE",
            f"{num_bytes} bytes of metadata are more than {MAX_METADATA_BYTES}",
            {"num_bytes": str(num_bytes), "max_bytes": str(MAX_METADATA_BYTES)},
        )
