"""Streaming calls to a peer that are kept open, so that a request costs a message and not a call.

Opening and ending a call is most of the transport cost of a request: two thirds of it between
processes that have slept for 30 ms.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Generic

import grpc
import grpc.aio

from specmesh.orchestrator.replicas.transport.exchange import Receiver
from specmesh.orchestrator.replicas.transport.inbox import Response, call_error
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

    def begin(self, request: Request, receiver: Receiver[Response]) -> _OneAtATime:
        """Send ``request``; see ``OpenCalls.begin``."""
        if self._retired:
            raise call_error(grpc.StatusCode.UNAVAILABLE, "the replica has left")
        call = self._take()
        self._num_busy += 1
        self._keep_spare(NUM_SPARE - self._num_busy)  # it is open by the time of the next request
        call.receiver = receiver
        call.write(request)
        return _OneAtATime(self, call)

    def ended(self, call: OpenCall[Request, Response], error: BaseException | None) -> None:
        """Keep ``call`` for another request, unless its last one has ended with an ``error``."""
        self._num_busy -= 1
        call.receiver = None
        if error is None and len(self._idle) < MAX_IDLE and not (self._retired or call.over):
            self._idle.append(call)
            return
        call.cancel()
        if isinstance(error, asyncio.CancelledError):
            self._keep_spare(NUM_SPARE)

    def _keep_spare(self, count: int) -> None:
        while len(self._idle) < count and not self._retired:
            self._idle.append(self._open())

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


class _OneAtATime:
    """A request that has a call for itself."""

    def __init__(self, pool: StreamPool[Any, Any], call: OpenCall[Any, Any]) -> None:
        self._pool = pool
        self._call: OpenCall[Any, Any] | None = call

    def close(self, error: BaseException | None = None) -> None:
        """End the request; see ``Sent.close``."""
        call, self._call = self._call, None
        if call is not None:
            self._pool.ended(call, error)


def _now() -> float:
    return asyncio.get_running_loop().time()
