"""From a request's bytes to its message: what is too large or no message at all is refused, typed.

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
"""Of all requests that a process has taken in and not answered yet."""
MAX_METADATA_BYTES = 16 * 2**10
RETRY_SECONDS = 1.0


class Received(NamedTuple):
    """A request as it came."""

    message: Any
    num_bytes: int


Taken: TypeAlias = Received | InvalidArgument
"""An error is raised later, where it can be told: a deserializer's own end as UNKNOWN."""


class Intake:
    """Takes in the requests of one server."""

    def __init__(self, max_request_bytes: int = MAX_REQUEST_BYTES) -> None:
        self._max_bytes = max_request_bytes
        self._num_held = 0

    def deserializer(self, deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Taken]:
        """``deserialize``, with what is wrong as a value; without one, bytes are the message."""

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
        """The message, whose bytes count until ``release``; raises what is wrong."""
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
        """What ``hold`` has let in is answered."""
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
