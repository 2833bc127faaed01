"""One answer of a call that carries many, with the methods of a call of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

import grpc

from specmesh.v1 import generation_pb2 as pb

MAX_UNREAD_BYTES: Final = 256 * 2**10
"""The most bytes of an answer that wait to be read, except for a single larger event. gRPC holds
back the events of a call whose reader is slow, but on a shared call that would hold up all other
answers."""


class NeedsOwnCall(Exception):
    """The answer goes on by a call of its own: its reader is too slow for a shared one, the
    orchestrator is too old for it, or it broke for no known reason."""


class Carrier(Protocol):
    """The call that carries an answer."""

    def cancel(self, number: int) -> None:
        """Take the answer off the call, and stop the orchestrator's work on it."""


class SharedAnswer:
    """The events of the answer ``number`` of ``carrier``, for one reader, until ``timeout_s`` have
    passed."""

    def __init__(self, carrier: Carrier, number: int, timeout_s: float) -> None:
        self._carrier = carrier
        self._number = number
        self._unread: deque[pb.GenerateResponse] = deque()
        self._num_unread_bytes = 0
        self._is_over = False
        """True if no more events come."""
        self._error: BaseException | None = None
        """What the reader is told behind the unread events of an answer that is over; None for
        EOF."""
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._timer = self._loop.call_later(timeout_s, self._expire)

    async def read(self) -> object:
        """Return the next event, a ``GenerateResponse``, or gRPC's EOF behind the last one.

        Raises ``AioRpcError`` as a call of its own would, ``NeedsOwnCall``, and ``CancelledError``
        once it is cancelled.
        """
        while not self._unread:
            if self._error is not None:
                raise self._error
            if self._is_over:
                return grpc.aio.EOF
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        event = self._unread.popleft()
        self._num_unread_bytes -= event.ByteSize()
        return event

    def cancel(self) -> None:
        """Stop the work on the answer. Whoever reads it is told."""
        if not self._is_over:
            self._unread.clear()
            self._break_off(asyncio.CancelledError())

    def arrived(self, event: pb.GenerateResponse) -> None:
        """Keep an event for the reader."""
        if self._is_over:
            return
        self._unread.append(event)
        self._num_unread_bytes += event.ByteSize()
        is_slow = self._num_unread_bytes > MAX_UNREAD_BYTES and len(self._unread) > 1
        if is_slow and not event.event.HasField("finished"):
            self._break_off(NeedsOwnCall())
        self._wake()

    def ended(self, error: BaseException | None = None) -> None:
        """Tell the reader, behind all events, that no more come, or ``error``."""
        if not self._is_over:
            self._is_over, self._error = True, error
            self._timer.cancel()
            self._wake()

    def _expire(self) -> None:
        self._break_off(call_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"))

    def _break_off(self, error: BaseException) -> None:
        self._carrier.cancel(self._number)
        self.ended(error)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def call_error(
    code: grpc.StatusCode, message: str, trailers: grpc.aio.Metadata | None = None
) -> grpc.aio.AioRpcError:
    """Return the error of a call that ended with this status."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers or grpc.aio.Metadata(), message)
