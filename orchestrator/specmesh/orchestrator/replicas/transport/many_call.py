"""A streaming call to a peer that carries many requests at once (VerifyMany, DraftMany).

What becomes ready in one step of the event loop travels in one message. So where one forward pass
answers many requests, their next requests cost one message as well, and arrive together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Generic

import grpc
import grpc.aio

from specmesh.orchestrator.replicas.transport.exchange import Receiver
from specmesh.orchestrator.replicas.transport.inbox import Response, call_error
from specmesh.orchestrator.replicas.transport.open_call import OpenCall, Request
from specmesh.orchestrator.replicas.transport.stream_pool import MAX_AGE_SECONDS
from specmesh.serving.codec.failures import read_failure

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 2**20
"""A request that would make a message larger waits for the next one: long prompts do not bring
others to the limits that peers have for a message."""


class _OneOfMany(Generic[Response]):
    """One request of a call."""

    def __init__(
        self, call: ManyCall[Any, Response], number: int, receiver: Receiver[Response]
    ) -> None:
        self.receiver = receiver
        self._call = call
        self._number = number
        self._num_messages = call.num_messages

    def close(self, error: BaseException | None = None) -> None:
        """End the request; see ``Sent.close``."""
        self._call.end(self._number, is_cancelled=error is not None)
        if _is_late(error) and self._call.num_messages == self._num_messages:
            self._call.retire()  # nothing at all came by it: the next request tries another


class ManyCall(Generic[Request, Response]):
    """One open call, and the requests on it. Its messages have the type ``new_message``."""

    def __init__(self, call: grpc.aio.StreamStreamCall[Any, Any], new_message: type[Any]) -> None:
        self.num_messages = 0
        """Messages that the peer has sent."""
        self._call: OpenCall[Any, Any] = OpenCall(call)
        self._call.receiver = self
        self._new_message = new_message
        self._under_way: dict[int, _OneOfMany[Response]] = {}
        self._num_begun = 0
        self._requests: deque[tuple[int, Any]] = deque()
        self._cancelled: list[int] = []
        self._is_sending = False
        self._is_crowd = False
        """True if the latest message of the peer was about several requests."""
        self._is_retired = False
        self._loop = asyncio.get_running_loop()

    @property
    def is_usable(self) -> bool:
        """True if further requests may be sent by this call."""
        is_new = self._loop.time() < self._call.began + MAX_AGE_SECONDS
        return is_new and not (self._is_retired or self._call.over)

    @property
    def is_shared(self) -> bool:
        """True if a further request would share messages with others."""
        return self._is_crowd or bool(self._under_way)

    def begin(self, request: Request, receiver: Receiver[Response]) -> _OneOfMany[Response]:
        """Send a request."""
        self._num_begun += 1
        number = self._num_begun
        one = self._under_way[number] = _OneOfMany(self, number, receiver)
        self._requests.append((number, request))
        self._send_soon()
        return one

    def end(self, number: int, *, is_cancelled: bool) -> None:
        """Forget a request; the peer need not go on with one that ``is_cancelled``."""
        if self._under_way.pop(number, None) is not None and is_cancelled:
            self._cancel(number)
        self._end_if_retired()

    def retire(self) -> None:
        """End the call once all its requests have ended."""
        self._is_retired = True
        self._end_if_retired()

    def _end_if_retired(self) -> None:
        if self._is_retired and not self._under_way:
            self._call.cancel()

    def _cancel(self, number: int) -> None:
        waiting = [each for each in self._requests if each[0] != number]
        if len(waiting) < len(self._requests):  # the peer does not know of it yet
            self._requests = deque(waiting)
            return
        self._cancelled.append(number)
        self._send_soon()

    def _send_soon(self) -> None:
        if self._is_sending:
            return
        if self._is_crowd or len(self._under_way) > 1:
            # Others follow in this step of the event loop, and go by the same message.
            self._is_sending = True
            self._loop.call_soon(self._send)
        else:
            self._send()

    def _send(self) -> None:
        """Send all that waits, one message after the other: gRPC takes one at a time."""
        self._is_sending = True
        while self._requests or self._cancelled:
            writing = self._call.write(self._next_message())
            if writing is not None:
                writing.add_done_callback(lambda _: self._send())
                return
        self._is_sending = False

    def _next_message(self) -> Any:
        message = self._new_message(cancelled=self._cancelled)
        self._cancelled.clear()
        left = MAX_MESSAGE_BYTES
        while self._requests:
            number, request = self._requests[0]
            left -= request.ByteSize()
            if left < 0 and message.requests:
                break
            message.requests.add(number=number, request=request)
            self._requests.popleft()
        return message

    def arrived(self, message: Any) -> None:
        """Pass on what the peer says of some requests."""
        self.num_messages += 1
        self._is_crowd = len(message.responses) > 1
        for each in message.responses:
            one = self._under_way.get(each.number)
            if one is None:
                continue  # cancelled meanwhile
            try:
                if each.HasField("failure"):
                    del self._under_way[each.number]  # there is nothing left to cancel
                    one.receiver.ended(read_failure(each.failure))
                else:
                    one.receiver.arrived(each.response)
            except Exception:  # is none of the other requests' business
                log.exception("response not handled")

    def ended(self, end: BaseException) -> None:
        """Tell all requests why the call has ended."""
        under_way, self._under_way = self._under_way, {}
        self._call.cancel()
        for one in under_way.values():
            one.receiver.ended(_again(end))


class ManyCalls(Generic[Request, Response]):
    """The call of one such method of one peer, and those before it that are ending."""

    def __init__(
        self, method: grpc.aio.StreamStreamMultiCallable[Any, Any], new_message: type[Any]
    ) -> None:
        self._method = method
        self._new_message = new_message
        self._call: ManyCall[Request, Response] | None = None
        self._is_retired = False

    @property
    def is_shared(self) -> bool:
        """True if a further request would share messages with others."""
        call = self._call
        return call is not None and call.is_usable and call.is_shared

    def retire(self) -> None:
        """Take no more requests, and end each call once its requests have ended."""
        self._is_retired = True
        if self._call is not None:
            self._call.retire()

    def begin(self, request: Request, receiver: Receiver[Response]) -> _OneOfMany[Response]:
        """Send ``request``; see ``OpenCalls.begin``."""
        if self._is_retired:
            raise call_error(grpc.StatusCode.UNAVAILABLE, "the replica has left")
        return self._usable().begin(request, receiver)

    def _usable(self) -> ManyCall[Request, Response]:
        if self._call is not None and self._call.is_usable:
            return self._call
        if self._call is not None:
            self._call.retire()
        self._call = ManyCall(self._method(), self._new_message)
        return self._call


def _is_late(error: BaseException | None) -> bool:
    if not isinstance(error, grpc.aio.AioRpcError):
        return False
    return error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def _again(error: BaseException) -> BaseException:
    """Return an error like ``error`` for one more request: raising the same one for each would
    gather the frames of all of them."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return error
    return grpc.aio.AioRpcError(
        error.code(),
        error.initial_metadata(),
        error.trailing_metadata(),
        error.details(),
        error.debug_error_string(),
    )
