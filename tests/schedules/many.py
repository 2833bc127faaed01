"""Calls that carry many requests at once, as simulated replicas answer them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.schedules.network import ServerCall
from tests.schedules.status import Status

from specmesh.mesh.v1alpha1 import drafter_pb2, failure_pb2, verifier_pb2

_VERIFY = (
    verifier_pb2.VerifyManyRequest,
    verifier_pb2.VerifyManyResponse,
    verifier_pb2.VerifyEachResponse,
)
_DRAFT = (
    drafter_pb2.DraftManyRequest,
    drafter_pb2.DraftManyResponse,
    drafter_pb2.DraftEachResponse,
)


class Part:
    """One request of a call, as a call of its own would look to a replica."""

    def __init__(self, many: ManyParts, number: int) -> None:
        self.on_message: Callable[[bytes], None] = lambda message: None
        self.on_cancel: Callable[[], None] = lambda: None
        self.client = many.call.client
        self._many = many
        self._number = number

    def reply(self, message: bytes) -> None:
        """Send a message."""
        self._many.say(self._number, response=self._many.response.FromString(message))

    def end(self, status: Status) -> None:
        """Say that it has failed."""
        failure = failure_pb2.RequestFailure(
            code=status.code.value[0],
            message=status.details,
            status_details=dict(status.trailing).get("grpc-status-details-bin", b""),
        )
        self._many.say(self._number, failure=failure)


class ManyParts:
    """One open call to a replica, each of whose requests ``begin`` takes as a call."""

    def __init__(self, call: ServerCall, begin: Callable[[Any], None]) -> None:
        verifies = call.method.endswith("VerifyMany")
        self._request, self._whole, self.response = _VERIFY if verifies else _DRAFT
        self.call = call
        self._begin = begin
        self._parts: dict[int, Part] = {}
        call.on_message = self._ask
        call.on_cancel = self._stop

    def say(self, number: int, **said: Any) -> None:
        """Send what there is to one request."""
        message: Any = self._whole()
        message.responses.add(number=number, **said)
        self.call.reply(message.SerializeToString())

    def _ask(self, body: bytes) -> None:
        message: Any = self._request.FromString(body)
        for number in message.cancelled:
            if (part := self._parts.pop(number, None)) is not None:
                part.on_cancel()
        for each in message.requests:
            part = self._parts[each.number] = Part(self, each.number)
            self._begin(part)
            part.on_message(each.request.SerializeToString())

    def _stop(self) -> None:
        for part in self._parts.values():
            part.on_cancel()
