"""A streaming call to a peer that carries many requests at once (VerifyMany, DraftMany).

What becomes ready in one step of the event loop travels in one message. So where one forward pass
answers many requests, their next requests cost one message as well, and arrive together.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic

import grpc
import grpc.aio

from specmesh.orchestrator.replicas.transport.inbox import Inbox, Response, Take, call_error
from specmesh.orchestrator.replicas.transport.open_call import OpenCall, Request
from specmesh.orchestrator.replicas.transport.stream_pool import MAX_AGE_SECONDS, Exchange
from specmesh.serving.codec.failures import read_failure

MAX_MESSAGE_BYTES = 2**20
"""A request that would make a message larger waits for the next one: long prompts do not bring
others to the limits that peers have for a message."""


class _OneRequest(Generic[Response]):
    """One request of a call and its responses."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self.inbox: Inbox[Response] = Inbox()
        self._cancel = cancel

    def cancel(self) -> None:
        """Stop the peer's work now, so that ``each`` raises ``CancelledError``."""
        self._cancel()
        self.inbox.ended(asyncio.CancelledError())

    async def each(self, take: Take[Response], by: float) -> None:
        """Pass the responses to ``take`` as ``Inbox.each`` does."""
        await self.inbox.each(take, by)


class ManyCall(Generic[Request, Response]):
    """One open call, and the requests on it. Its messages have the type ``new_message``."""

    def __init__(self, call: grpc.aio.StreamStreamCall[Any, Any], new_message: type[Any]) -> None:
        self.num_messages = 0
        """Messages that the peer has sent."""
        self._call: OpenCall[Any, Any] = OpenCall(call)
        self._new_message = new_message
        self._under_way: dict[int, _OneRequest[Response]] = {}
        self._num_begun = 0
        self._requests: deque[tuple[int, Any]] = deque()
        self._cancelled: list[int] = []
        self._is_sending = False
        self._is_crowd = False
        """True if the latest message of the peer was about several requests."""
        self._is_retired = False
        self._loop = asyncio.get_running_loop()
        self._reading = asyncio.create_task(self._read())

    @property
    def is_usable(self) -> bool:
        """True if further requests may be sent by this call."""
        is_new = self._loop.time() < self._call.began + MAX_AGE_SECONDS
        return is_new and not (self._is_retired or self._call.over or self._reading.done())

    @property
    def is_shared(self) -> bool:
        """True if a further request would share messages with others."""
        return self._is_crowd or bool(self._under_way)

    def begin(self, request: Request) -> tuple[int, _OneRequest[Response]]:
        """Send a request; return its number and what brings its responses."""
        self._num_begun += 1
        number = self._num_begun
        one: _OneRequest[Response] = _OneRequest(lambda: self._cancel(number))
        self._under_way[number] = one
        self._requests.append((number, request))
        self._send_soon()
        return number, one

    def forget(self, number: int) -> None:
        """Drop a request that has ended."""
        self._under_way.pop(number, None)
        if self._is_retired and not self._under_way:
            self._call.cancel()

    def retire(self) -> None:
        """End the call once all its requests have ended."""
        self._is_retired = True
        if not self._under_way:
            self._call.cancel()

    def _cancel(self, number: int) -> None:
        if self._under_way.pop(number, None) is None:
            return
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

    async def _read(self) -> None:
        end: BaseException
        try:
            await self._call.each(self._arrived, math.inf)
        except BaseException as error:
            end = error.with_traceback(None)
        else:
            end = call_error(grpc.StatusCode.UNAVAILABLE, "the peer ended the call")
        self._call.cancel()
        for one in self._under_way.values():
            one.inbox.ended(_again(end))
        self._under_way.clear()

    def _arrived(self, message: Any) -> float:
        self.num_messages += 1
        self._is_crowd = len(message.responses) > 1
        for each in message.responses:
            one = self._under_way.get(each.number)
            if one is None:
                continue  # cancelled meanwhile
            if each.HasField("failure"):
                del self._under_way[each.number]  # there is nothing left to cancel
                one.inbox.ended(read_failure(each.failure))
            else:
                one.inbox.arrived(each.response)
        return math.inf


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

    @contextmanager
    def send(self, request: Request, deadline: float) -> Iterator[Exchange[Response]]:
        """Send ``request``; the block must read all its responses.

        If the block raises, the peer's work on the request is cancelled. Raises ``AioRpcError`` if
        the calls have been retired.
        """
        if self._is_retired:
            raise call_error(grpc.StatusCode.UNAVAILABLE, "the replica has left")
        call = self._usable()
        num_messages = call.num_messages
        number, one = call.begin(request)
        try:
            yield Exchange(one, deadline)
        except BaseException as error:
            one.cancel()
            if _is_late(error) and call.num_messages == num_messages:
                call.retire()  # nothing at all came by it: the next request tries another
            raise
        finally:
            call.forget(number)

    def _usable(self) -> ManyCall[Request, Response]:
        if self._call is not None and self._call.is_usable:
            return self._call
        if self._call is not None:
            self._call.retire()
        self._call = ManyCall(self._method(), self._new_message)
        return self._call


def _is_late(error: BaseException) -> bool:
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
