"""A streaming call to a peer that stays open, and the delivery of its messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

import grpc
import grpc.aio

from specmesh.serving.eager import begin

Request = TypeVar("Request")
Response = TypeVar("Response")

Take: TypeAlias = Callable[[Response], float | None]
"""Receives a message and returns the deadline of the next one, by the event loop's clock, or None
after the last."""


class OpenCall(Generic[Request, Response]):
    """A streaming call that tasks of its own write and read. These tasks are never cancelled.

    Each gRPC operation whose awaiting task is cancelled leaks some 100 bytes
    (github.com/grpc/grpc/issues/43360). If the call is cancelled instead, its operations end by
    themselves, except for the first, the wait until the peer opens the call: a call cancelled
    before that is cancelled once the peer has opened it.
    """

    def __init__(self, call: grpc.aio.StreamStreamCall[Request, Response]) -> None:
        self.began = asyncio.get_running_loop().time()
        self._call = call
        self._opened = False
        self._cancelled = False
        self._early: deque[Response] = deque()
        """Messages that arrived while ``each`` was not running."""
        self._delivery: _Delivery[Response] | None = None
        self._end: BaseException | None = None
        """The error that ended the call."""
        self._reading = asyncio.create_task(self._read_all())
        self._writing: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """True if the call has ended."""
        return self._cancelled or self._call.done()

    def cancel(self) -> None:
        """Cancel the call now, so that ``each`` raises ``CancelledError``."""
        self._cancelled = True
        self._ended(asyncio.CancelledError())
        if self._opened:
            self._call.cancel()

    def write(self, request: Request) -> None:
        """Send a request immediately. Errors of the call are raised by ``each``."""
        self._writing = begin(self._write(request))

    async def each(self, take: Take[Response], by: float) -> None:
        """Pass messages to ``take``, each in the step of the event loop that read it, until it
        returns None. The first must arrive before ``by``, by the event loop's clock.

        Raises the ``AioRpcError`` that ended the call, ``CancelledError`` if that was ``cancel``,
        ``AioRpcError`` with DEADLINE_EXCEEDED for a late message, or what ``take`` raises.
        """
        delivery = self._delivery = _Delivery(take, by)
        try:
            while self._early and not delivery.over:
                delivery.deliver(self._early.popleft())
            if self._end is not None:
                delivery.end(self._end)
            await delivery.wait()
        finally:
            self._delivery = None

    def _ended(self, end: BaseException) -> None:
        if self._end is None:
            self._end = end
            if self._delivery is not None:
                self._delivery.end(end)

    async def _write(self, request: Request) -> None:
        if self._cancelled:
            return
        try:
            await self._call.write(request)
        except asyncio.InvalidStateError:
            pass  # the call has ended, and ``each`` raises the reason
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INTERNAL:  # gRPC could not send the request
                error = call_error(grpc.StatusCode.UNAVAILABLE, "the call broke")
            self._ended(error)
        except asyncio.CancelledError:
            self._ended(_closed())
        except Exception as error:
            self._ended(error.with_traceback(None))  # a traceback would form a cycle with this call

    async def _read_all(self) -> None:
        call: Any = self._call
        try:
            await call.initial_metadata()
            self._opened = True
            if self._cancelled:
                call.cancel()
            while (message := await call.read()) is not grpc.aio.EOF:
                self._arrived(message)
            end: BaseException = call_error(grpc.StatusCode.UNAVAILABLE, "the peer ended the call")
        except asyncio.CancelledError:
            end = _closed()
        except Exception as error:
            end = error.with_traceback(None)  # as above
        self._ended(end)

    def _arrived(self, message: Response) -> None:
        if self._cancelled:
            return
        if self._delivery is None or self._delivery.over:
            self._early.append(message)
        else:
            self._delivery.deliver(message)


class _Delivery(Generic[Response]):
    """One run of ``each``: delivers messages until the last one, an error, or a missed deadline."""

    def __init__(self, take: Take[Response], by: float) -> None:
        self._take = take
        self._by = by
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._error: BaseException | None = None
        self._timer_at = by
        self._timer = self._loop.call_at(by, self._fired)

    @property
    def over(self) -> bool:
        """True if no more messages are delivered."""
        return self._done.done()

    def deliver(self, message: Response) -> None:
        """Pass a message on, and end the delivery if it was the last or was refused."""
        try:
            by = self._take(message)
        except Exception as error:
            self.end(error)
            return
        if by is None:
            self.end(None)
        else:
            self._expect(by)

    def end(self, error: BaseException | None) -> None:
        """End the delivery; ``wait`` raises ``error`` if there is one."""
        if not self._done.done():
            self._error = error
            self._done.set_result(None)

    async def wait(self) -> None:
        """Return after the last message, or raise the error that ended the delivery."""
        try:
            await self._done
        finally:
            self._timer.cancel()
        if self._error is not None:
            raise self._error

    def _expect(self, by: float) -> None:
        # A timer that fires too early is set again then, so most messages need not set one.
        self._by = by
        if by < self._timer_at:
            self._set_timer()

    def _fired(self) -> None:
        if self._loop.time() >= self._by:
            self.end(late())
        else:
            self._set_timer()

    def _set_timer(self) -> None:
        self._timer.cancel()
        self._timer_at = self._by
        self._timer = self._loop.call_at(self._by, self._fired)


def _closed() -> grpc.aio.AioRpcError:
    """Return the error of a call that gRPC cancelled without ``cancel``: the waiting task was not
    cancelled itself and may retry elsewhere."""
    return call_error(grpc.StatusCode.UNAVAILABLE, "the channel was closed")


def late() -> grpc.aio.AioRpcError:
    """Return the error of a call that is not answered in time."""
    return call_error(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time")


def call_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """Return the error of a call that ended with this status."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details)
