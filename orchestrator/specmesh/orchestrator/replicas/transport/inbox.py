"""The messages that a peer sends for one request, and their delivery."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

import grpc
import grpc.aio

Response = TypeVar("Response")

Take: TypeAlias = Callable[[Response], float | None]
"""Receives a message and returns the deadline of the next one, by the event loop's clock, or None
after the last."""


class Inbox(Generic[Response]):
    """Keeps messages that arrive until somebody takes them, and how their source has ended."""

    def __init__(self) -> None:
        self._early: deque[Response] = deque()
        """Messages that arrived while ``each`` was not running."""
        self._delivery: _Delivery[Response] | None = None
        self._end: BaseException | None = None

    async def each(self, take: Take[Response], by: float) -> None:
        """Pass messages to ``take``, each in the step of the event loop that read it, until it
        returns None. The first must arrive before ``by``, by the event loop's clock.

        Raises the error with which the source has ended, ``AioRpcError`` with DEADLINE_EXCEEDED for
        a late message, or what ``take`` raises.
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

    def arrived(self, message: Response) -> None:
        """Deliver a message now, or keep it."""
        if self._delivery is None or self._delivery.over:
            self._early.append(message)
        else:
            self._delivery.deliver(message)

    def ended(self, end: BaseException) -> None:
        """Record that no more messages come, the first time that this is said."""
        if self._end is None:
            self._end = end
            if self._delivery is not None:
                self._delivery.end(end)


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


def late() -> grpc.aio.AioRpcError:
    """Return the error of a call that is not answered in time."""
    return call_error(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time")


def call_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """Return the error of a call that ended with this status."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details)
