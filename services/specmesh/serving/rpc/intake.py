"""Parsing of requests. A request that is too large, malformed, or has unknown fields is refused
with a reason.

gRPC itself would refuse it without a reason. Its own size limits are therefore wider than these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError, Message

from specmesh.serving.errors import InvalidArgument, ResourceExhaustedStatus, ServiceError
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
        message = self._parse(data)
        if isinstance(message, Message):
            path = unknown_field(message, data)
            if path is not None:
                raise _does_not_know(path)
        return message

    def read_many(self) -> tuple[Any, dict[int, ServiceError]]:
        """Parse a message whose field ``requests`` holds many, and drop the bytes; call this once.
        Return it with the errors, by number, of requests with unknown fields. Raises
        ``InvalidArgument`` for what is not one request's fault."""
        data, self._data = self._data, b""
        message = self._parse(data)
        refused: dict[int, ServiceError] = {}
        path = unknown_field(message, data)
        if path is not None:
            for each in self._parse(data).requests:
                own = unknown_field(each, each.SerializeToString())
                if own is not None:
                    refused[each.number] = _does_not_know(own)
            if not refused:
                raise _does_not_know(path)
        return message, refused

    def _parse(self, data: bytes) -> Any:
        try:
            return self._deserialize(data) if self._deserialize else data
        except DecodeError:
            raise InvalidArgument(
                "UNDECODABLE", "the request can't be parsed as a message of this method"
            ) from None


class HeldMessage:
    """A message that carries many requests, whose bytes are counted until it is released as often
    as it was shared, and once more.

    ``refused`` has the errors of requests that are not to be answered otherwise, by number.
    """

    def __init__(
        self, message: Any, refused: Mapping[int, ServiceError], release: Callable[[], None]
    ) -> None:
        self.message = message
        self.refused = refused
        self._release = release
        self._num_holders = 1

    def share(self) -> HeldMessage:
        """Return this for one more holder, who must release it too."""
        self._num_holders += 1
        return self

    def release(self) -> None:
        """Stop holding the message."""
        self._num_holders -= 1
        if not self._num_holders:
            self._release()


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
        if arrival.num_bytes > self._max_bytes:
            raise self._too_large(arrival.num_bytes)
        if self._num_held + arrival.num_bytes > self._max_held:
            raise self._overloaded()
        message = arrival.read()
        self._num_held += arrival.num_bytes
        return message

    def hold_many(self, arrival: Arrival) -> HeldMessage:
        """Hold a message whose field ``requests`` holds many. Its limits are those of each request,
        and what is wrong with one of them refuses that one alone. Raises ``InvalidArgument`` for
        what is not one request's fault."""
        message, refused = arrival.read_many()
        if arrival.num_bytes > self._max_bytes:
            for each in message.requests:
                if (num_bytes := each.ByteSize()) > self._max_bytes:
                    refused[each.number] = self._too_large(num_bytes)
        if self._num_held + arrival.num_bytes > self._max_held:
            refused |= {each.number: self._overloaded() for each in message.requests}
            return HeldMessage(message, refused, lambda: None)
        self._num_held += arrival.num_bytes
        return HeldMessage(message, refused, partial(self.release, arrival))

    def release(self, arrival: Arrival) -> None:
        """Stop counting a request that ``hold`` has accepted."""
        self._num_held -= arrival.num_bytes

    def _too_large(self, num_bytes: int) -> ServiceError:
        return InvalidArgument(
            "MESSAGE_TOO_LARGE",
            f"the request has {num_bytes} bytes; the limit is {self._max_bytes}",
            {"num_bytes": str(num_bytes), "max_bytes": str(self._max_bytes)},
        )

    def _overloaded(self) -> ServiceError:
        return ResourceExhaustedStatus(
            "OVERLOADED",
            f"the requests being answered already hold {self._num_held} bytes",
            retry_after_s=RETRY_SECONDS,
        )


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
