"""The client's end of a call, as ``grpc.aio`` shows it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from tests.schedules.clock import Process, current_process
from tests.schedules.status import CANCELLED, GONE, Status

if TYPE_CHECKING:
    from tests.schedules.network import Channel, Network, ServerCall


class ClientCall:
    """Of any kind: awaited if it has one response, iterated or read if it has many."""

    def __init__(
        self,
        network: Network,
        channel: Channel,
        method: str,
        kinds: dict[str, Any],
        observe: Callable[[ClientCall, Any], None] | None,
    ) -> None:
        self.method = method
        self.channel = channel
        self.process: Process | None = current_process()
        self.context = copy_context()
        self.server: ServerCall | None = None
        self.server_process: Process | None = None
        self.keepalive = False
        self.stalled = False
        self.last_at_server = 0.0
        self.last_at_client = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self._network = network
        self._observe = observe
        self._write_message = kinds["request_serializer"]
        self._read_message = kinds["response_deserializer"]
        self._inbox: deque[bytes] = deque()
        self._status: Status | None = None
        self._waiter: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"{self.process}>{self.server_process} {self.method.rpartition('/')[2]}"

    def done(self) -> bool:
        """Whether it has ended."""
        return self._status is not None

    def cancelled(self) -> bool:
        """Whether it was cancelled here."""
        return self._status is CANCELLED

    def cancel(self) -> bool:
        """Want no more."""
        return self.give_up(CANCELLED)

    def give_up(self, status: Status) -> bool:
        """Want no more, for the reason ``status``."""
        if self._status is not None:
            return False
        self._inbox.clear()
        self.ended(status)
        if self.server is not None:
            self._network.give_up(self, self.server)
        return True

    async def initial_metadata(self) -> None:
        """A call is open at once, or as good as: until it is nothing comes of what is asked."""

    async def write(self, message: Any) -> None:
        """Send a message."""
        if self._status is not None:
            raise asyncio.InvalidStateError("RPC already finished.")
        assert self.server is not None or self.server_process is None
        if self.server is not None:
            body = self._write_message(message)
            self._network.to_server(self, self.server.received, body)

    async def done_writing(self) -> None:
        """The server may notice, but none of ours waits for it."""

    async def read(self) -> Any:
        """The next message, ``grpc.aio.EOF`` at the end."""
        while not self._inbox:
            if self._status is not None:
                return self._no_more()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                self.cancel()
                raise
            finally:
                self._waiter = None
        message = self._read_message(self._inbox.popleft())
        if self._observe is not None:
            self._observe(self, message)
        return message

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._each()

    def __await__(self) -> Generator[Any, None, Any]:
        return self.read().__await__()

    async def _each(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    def _no_more(self) -> Any:
        assert self._status is not None
        if self._status is CANCELLED:
            raise asyncio.CancelledError
        if self._status.code is not grpc.StatusCode.OK:
            raise self._status.error()
        return grpc.aio.EOF

    def received(self, body: bytes) -> None:
        """A message has come."""
        if self._status is None:
            self._inbox.append(body)
            self._wake()

    def ended(self, status: Status) -> None:
        """The end has come."""
        if self._status is not None:
            return
        self._status = status
        if status is GONE:
            self._inbox.clear()
        if self.timer is not None:
            self.timer.cancel()
        self._network.over(self)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
