"""Streaming calls to a peer that are kept open, so that a request costs a message and not a call.

Opening and ending a call is most of the transport cost of a request: two thirds of it between
processes that have slept for 30 ms.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, Protocol, TypeVar

import grpc
import grpc.aio

from specmesh.orchestrator.replicas.transport.inbox import Response, Take, call_error
from specmesh.orchestrator.replicas.transport.open_call import OpenCall, Request

MAX_IDLE = 16
"""Most open calls that are kept for later requests."""
NUM_SPARE = 2
"""Open calls that take turns, even for requests that come one by one: a call by which an answer has
just come takes 0.8 ms longer to bring the next (with gRPC 1.85, between processes that sleep for
30 ms). As many are kept after a request was cancelled: the next request needs one immediately."""
MAX_AGE_SECONDS = 60.0
"""Age at which an open call gets no more requests: the peer may have asked its connection to end
(``--max-connection-age-seconds``), and it ends once its calls do."""


Response_co = TypeVar("Response_co", covariant=True)
Request_contra = TypeVar("Request_contra", contravariant=True)


class ResponseSource(Protocol[Response_co]):
    """What brings the responses to one request."""

    def cancel(self) -> None:
        """Stop the peer's work now, so that ``each`` raises ``CancelledError``."""

    async def each(self, take: Take[Response_co], by: float) -> None:
        """Pass responses to ``take`` as ``Inbox.each`` does."""


class OpenCalls(Protocol[Request_contra, Response]):
    """Sends requests to one peer by one of its methods."""

    def retire(self) -> None:
        """Take no more requests, and end each call once its requests have ended."""

    def send(
        self, request: Request_contra, deadline: float
    ) -> AbstractContextManager[Exchange[Response]]:
        """Send ``request``; the block must read all its responses.

        If the block raises, the peer's work on the request is cancelled. Raises ``AioRpcError`` if
        the calls have been retired.
        """


class Exchange(Generic[Response]):
    """One request and its responses, until ``deadline`` by the event loop's clock."""

    def __init__(self, source: ResponseSource[Response], deadline: float) -> None:
        self._source = source
        self._deadline = deadline

    def cancel(self) -> None:
        """Stop the peer's work now, so that ``each`` raises ``CancelledError``."""
        self._source.cancel()

    async def read(self) -> Response:
        """Return the only response. Raises what ``each`` raises."""
        messages: list[Response] = []
        await self._source.each(messages.append, self._deadline)
        return messages[0]

    async def each(self, take: Take[Response], by: float | None = None) -> None:
        """Pass the responses to ``take`` as they arrive. The first must arrive before ``by`` or the
        deadline, whichever is earlier.

        Raises ``AioRpcError``, also for a late response, and what ``take`` raises.
        """

        def bounded(message: Response) -> float | None:
            next_by = take(message)
            return None if next_by is None else min(next_by, self._deadline)

        await self._source.each(bounded, self._deadline if by is None else min(by, self._deadline))


class StreamPool(Generic[Request, Response]):
    """Open calls of one streaming method of one peer. Each serves one request at a time."""

    def __init__(self, method: grpc.aio.StreamStreamMultiCallable[Request, Response]) -> None:
        self._method = method
        self._idle: deque[OpenCall[Request, Response]] = deque()
        self._num_busy = 0
        self._retired = False

    @property
    def is_busy(self) -> bool:
        """True while a request is under way."""
        return self._num_busy > 0

    def retire(self) -> None:
        """End the idle calls now, and each other call after its current request."""
        self._retired = True
        while self._idle:
            self._idle.popleft().cancel()

    @contextmanager
    def send(self, request: Request, deadline: float) -> Iterator[Exchange[Response]]:
        """Send ``request``; the block must read all its responses.

        If the block raises, the call is cancelled, and with it the peer's work. Raises
        ``AioRpcError`` if the pool has been retired.
        """
        if self._retired:
            raise call_error(grpc.StatusCode.UNAVAILABLE, "the replica has left")
        call = self._take()
        self._num_busy += 1
        while len(self._idle) + self._num_busy < NUM_SPARE:
            self._idle.append(self._open())  # it is open by the time of the next request
        try:
            call.write(request)
            yield Exchange(call, deadline)
        except grpc.aio.AioRpcError:
            call.cancel()
            raise
        except BaseException:
            call.cancel()
            while len(self._idle) < NUM_SPARE and not self._retired:
                self._idle.append(self._open())
            raise
        finally:
            self._num_busy -= 1
        if len(self._idle) < MAX_IDLE and not (self._retired or call.over):
            self._idle.append(call)
        else:
            call.cancel()

    def _take(self) -> OpenCall[Request, Response]:
        oldest = _now() - MAX_AGE_SECONDS
        while self._idle:
            call = self._idle.popleft()
            if call.began < oldest:
                call.cancel()
            elif not call.over:
                return call
        return self._open()

    def _open(self) -> OpenCall[Request, Response]:
        return OpenCall(self._method())


def _now() -> float:
    return asyncio.get_running_loop().time()
