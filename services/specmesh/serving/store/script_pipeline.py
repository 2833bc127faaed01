"""Calls of one script that share round trips to Redis.

Most of what a call costs is its round trip: a connection of the pool, two system calls, several
steps of the event loop. Many answers grow at the same moment, so their appends go together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from specmesh.serving.store.stored_session import StoreUnavailable

Answer = Callable[[Collection[str], Awaitable[Any], float], Awaitable[Any]]
"""Sends what it is given to await, and returns the reply within a timeout; for some purposes, the
first of which was wanted since a time by the event loop's clock. Raises StoreUnavailable."""


class ScriptPipeline:
    """Runs calls of ``script``. Those that come while a round trip is under way share the next.

    A round trip's timeout begins when it is sent, so that a slow server can still answer calls that
    came while another one was under way. A call thus waits for two timeouts at most, or for five if
    its server is found to lack the script.
    """

    def __init__(self, client: Redis, script: str, answer: Answer) -> None:
        self._client = client
        self._script = script
        self._sha = client.register_script(script).sha
        self._answer = answer
        self._next: _RoundTrip | None = None
        self._sending: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        """Runs while a server without the script gets it, for all calls that have found it so."""

    async def run(
        self, purpose: str, keys: Sequence[bytes], args: Sequence[str | bytes | int]
    ) -> Any:
        """Return the reply to a call, which is an exception if the server refused it. Raises
        StoreUnavailable. A call that finds a server without the script takes two more round trips.
        """
        command = ("EVALSHA", self._sha, len(keys), *keys, *args)
        reply = await self._sent(purpose, command)
        if isinstance(reply, NoScriptError):  # the server is new here, or was restarted
            if self._loading is None:
                self._loading = asyncio.create_task(self._load(purpose))
            await asyncio.shield(self._loading)
            reply = await self._sent(purpose, command)
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

    def _sent(self, purpose: str, command: tuple[str | bytes | int, ...]) -> asyncio.Future[Any]:
        if self._next is None:
            self._next = _RoundTrip(self._client)
        reply = self._next.add(purpose, command)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        return reply

    async def _send(self) -> None:
        try:
            while self._next is not None:
                trip, self._next = self._next, None
                try:
                    trip.arrived(await self._answer(trip.purposes, trip.sent(), trip.began))
                except StoreUnavailable as error:
                    trip.failed(str(error))
                finally:
                    trip.failed("the store was closed")
        finally:
            self._sending = None
            if self._next is not None:  # cancelled meanwhile: nobody else sends what waits
                self._next.failed("the store was closed")
                self._next = None


class _RoundTrip:
    """Commands that are sent together, and the futures of their replies."""

    def __init__(self, client: Redis) -> None:
        self.purposes: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self.began = self._loop.time()
        self._pipeline = client.pipeline(transaction=False)
        self._replies: list[asyncio.Future[Any]] = []

    def add(self, purpose: str, command: tuple[str | bytes | int, ...]) -> asyncio.Future[Any]:
        """Add a command; return the future of its reply."""
        self.purposes.add(purpose)
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
