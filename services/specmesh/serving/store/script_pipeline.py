"""Calls of one script that share round trips to Redis.

Most of what a call costs is its round trip: a connection of the pool, two system calls, several
steps of the event loop. Many answers grow at the same moment, so their appends go together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from specmesh.serving.store.stored_session import StoreUnavailable

MOST_BYTES = 1 << 20
"""The most that calls which share a round trip send and are expected to be sent: what a link of
1 MB/s carries within a timeout of one second. A call that is larger has a round trip of its own."""

Answer = Callable[[Collection[str], Awaitable[Any], float], Awaitable[Any]]
"""Sends what it is given to await, and returns the reply within a timeout; for some purposes, the
first of which was wanted since a time by the event loop's clock. Raises StoreUnavailable."""


class ScriptPipeline:
    """Runs calls of ``script``. Those that come while a round trip is under way share the next, or
    the next few, as far as they fit into one.

    A round trip's timeout begins when it is sent, so that a slow server can still answer calls that
    came while another one was under way. If none comes, so fail the calls that waited already when
    it was sent. Apart from the round trips that are answered, a call thus waits for two timeouts at
    most, or for five if its server is found to lack the script.
    """

    def __init__(self, client: Redis, script: str, answer: Answer) -> None:
        self._client = client
        self._script = script
        self._sha = client.register_script(script).sha
        self._answer = answer
        self._waiting: deque[_RoundTrip] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        """Runs while a server without the script gets it, for all calls that have found it so."""

    async def run(
        self,
        purpose: str,
        keys: Sequence[bytes],
        args: Sequence[str | bytes | int],
        *,
        reply_bytes: int = 0,
    ) -> Any:
        """Return the reply to a call, which is expected to have about ``reply_bytes``, and is an
        exception if the server refused the call. Raises StoreUnavailable. A call that finds a
        server without the script takes two more round trips.
        """
        command = ("EVALSHA", self._sha, len(keys), *keys, *args)
        num_bytes = reply_bytes + _num_bytes(command)
        reply = await self._sent(purpose, command, num_bytes)
        if isinstance(reply, NoScriptError):  # the server is new here, or was restarted
            if self._loading is None:
                self._loading = asyncio.create_task(self._load(purpose))
            await asyncio.shield(self._loading)
            reply = await self._sent(purpose, command, num_bytes)
        if isinstance(reply, StoreUnavailable):
            raise reply
        return reply

    async def aclose(self) -> None:
        """Fail the calls that are under way."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait({self._sending})

    async def _load(self, purpose: str) -> None:
        now = asyncio.get_running_loop().time()
        try:
            await self._answer((purpose,), self._client.script_load(self._script), now)
        finally:
            self._loading = None

    def _sent(
        self, purpose: str, command: tuple[str | bytes | int, ...], num_bytes: int
    ) -> asyncio.Future[Any]:
        if not (self._waiting and self._waiting[-1].num_bytes + num_bytes <= MOST_BYTES):
            self._waiting.append(_RoundTrip(self._client))
        reply = self._waiting[-1].add(purpose, command, num_bytes)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        return reply

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._send(self._waiting.popleft())
        finally:
            self._sending = None
            while self._waiting:  # cancelled meanwhile: nobody else sends what waits
                self._waiting.popleft().failed("the store was closed")

    async def _send(self, trip: _RoundTrip) -> None:
        sent_at = asyncio.get_running_loop().time()
        try:
            trip.arrived(await self._answer(trip.purposes, trip.sent(), trip.began))
        except StoreUnavailable as error:
            trip.failed(str(error))
            # A server that hangs must not cost the last of many one timeout after the other.
            hangs = isinstance(error.__cause__, TimeoutError)
            while hangs and self._waiting and self._waiting[0].began <= sent_at:
                self._waiting.popleft().failed(str(error))
        finally:
            trip.failed("the store was closed")


class _RoundTrip:
    """Commands that are sent together, and the futures of their replies."""

    def __init__(self, client: Redis) -> None:
        self.purposes: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self.began = self._loop.time()
        self._pipeline = client.pipeline(transaction=False)
        self._replies: list[asyncio.Future[Any]] = []
        self.num_bytes = 0
        """About what the commands and their replies take."""

    def add(
        self, purpose: str, command: tuple[str | bytes | int, ...], num_bytes: int
    ) -> asyncio.Future[Any]:
        """Add a command; return the future of its reply."""
        self.purposes.add(purpose)
        self.num_bytes += num_bytes
        self._pipeline.execute_command(*command)
        reply = self._loop.create_future()
        self._replies.append(reply)
        return reply

    async def sent(self) -> list[Any]:
        """Send the commands; return their replies. Raises RedisError or OSError."""
        replies: list[Any] = await self._pipeline.execute(raise_on_error=False)
        return replies

    def arrived(self, replies: Sequence[Any]) -> None:
        """Give each reply to its caller, unless that has gone."""
        for future, reply in zip(self._replies, replies, strict=True):
            if not future.done():
                future.set_result(reply)

    def failed(self, reason: str) -> None:
        """Give the callers that still wait an error as their reply."""
        for future in self._replies:
            if not future.done():
                future.set_result(StoreUnavailable(reason))


def _num_bytes(command: tuple[str | bytes | int, ...]) -> int:
    """Return about how much of a link a command takes; its numbers are too short to count."""
    return sum(len(part) for part in command if not isinstance(part, int))
