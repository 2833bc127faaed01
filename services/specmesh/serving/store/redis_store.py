"""The base of stores in Redis: a prefix of keys, a timeout of each call, errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.exceptions import ReadOnlyError, RedisError, ResponseError

from specmesh.serving import conventions as names
from specmesh.serving.histograms import Series
from specmesh.serving.metrics import STORE_DURATION
from specmesh.serving.settings import DEFAULT_PREFIX
from specmesh.serving.store.patience import StorePatience
from specmesh.serving.store.redis_client import look_up_again
from specmesh.serving.store.redis_durability import CONFIG_NAMES, Finding, judge
from specmesh.serving.store.store_log import StoreLog, command_in, is_refusal
from specmesh.serving.store.stored_session import StoreUnavailable

CONNECT_TIMEOUT_S = 3.0
"""The timeout for connecting, which takes up to five round trips: TCP, TLS, user and database."""

_REPLACED = ("READONLY", "NOREPLICAS", "The previous master is now a slave")

_duration = STORE_DURATION.instrument()

T = TypeVar("T")


class RedisStore:
    """A store of one mesh in one Redis, under keys that begin with ``prefix``. ``address`` names it
    in the log.

    Every command is answered or raises StoreUnavailable within ``timeout_s`` of being sent, and of
    being called if it shares no round trips (see ``ScriptPipeline``); after StoreUnavailable the
    command may have run or not. A store is bound to the event loop that first uses it.
    """

    def __init__(
        self,
        client: Redis,
        *,
        address: str = "",
        prefix: str = DEFAULT_PREFIX,
        timeout_s: float = 1.0,
    ) -> None:
        self._client = client
        self._log = StoreLog(address)
        self._timeout_s = timeout_s
        self._prefix = prefix
        self._connecting: asyncio.Task[None] | None = None
        self.patience = StorePatience()
        """The time that is worth waiting for the store."""

    @property
    def address(self) -> str:
        """The store's address without any secret; empty if unknown."""
        return self._log.address

    @property
    def trouble(self) -> str:
        """The reason why the last command failed; empty if it was answered."""
        return self._log.trouble

    async def aclose(self) -> None:
        """Close all connections."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        await self._client.aclose()

    async def ping(self) -> None:
        """Return if Redis answers, else raise StoreUnavailable."""
        await self._answer("ping", self._client.ping())

    async def durability(self) -> tuple[Finding, ...]:
        """Return findings about the current server's durability. Raises StoreUnavailable."""
        info = await self._answer("info", _unless_refused("info", self._client.info()))
        if info is not None and info.get("loading"):
            # Valkey reports "aof_enabled:0" until it has read its file.
            raise StoreUnavailable("Redis is loading its data")
        config: dict[str, str] | None = {}
        for name in CONFIG_NAMES:
            asked = _unless_refused("config", self._client.config_get(name))
            reply = await self._answer("config", asked)
            config = None if reply is None or config is None else config | reply
        return judge(info, config)

    async def _answer(self, operation: str, command: Awaitable[T]) -> T:
        """Return a command's reply within the timeout, and record its duration."""
        return await self._answer_all((operation,), command, asyncio.get_running_loop().time())

    async def _answer_all(
        self, operations: Collection[str], commands: Awaitable[T], began: float
    ) -> T:
        """Return the replies to commands that share a round trip, which is sent now, within the
        timeout, and record the duration since ``began``, when the first of them was called, once
        for each of ``operations``."""
        now = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await commands
        except TimeoutError as error:
            reason = f"no answer from Redis in {self._timeout_s:g} s"
            for operation in operations:
                self._failed(operation, now() - began, "timeout")
                self._log.failed(operation, reason, now())
            await self._connect_ahead()
            raise StoreUnavailable(reason) from error
        except (RedisError, OSError) as error:
            for operation in operations:
                await self._broke(operation, error, now() - began)
            raise StoreUnavailable(f"Redis: {error}") from error
        self.patience.answered(now() - began)
        has_failure = _has_failure(answer)
        for operation in operations:
            if not has_failure:
                self._log.answered(operation)
            _durations(operation).record(now() - began)
        return answer

    async def _connect_ahead(self) -> None:
        """Begin to open a connection for later commands. Each command that times out loses its own,
        so a Redis that is far away would never be reached within one command's timeout."""
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(_connect(self._client))
            await asyncio.sleep(0)  # it takes the lost one from the pool before any command does

    async def _broke(self, operation: str, error: Exception, seconds: float) -> None:
        """Record that an operation failed or was refused, and log it."""
        self._failed(operation, seconds, type(error).__name__)
        if is_refusal(error):
            self._log.refused(operation, error)
        else:
            now, in_reach = asyncio.get_running_loop().time(), isinstance(error, ResponseError)
            self._log.failed(operation, str(error), now, in_reach=in_reach)
        if _is_replaced(error):
            await look_up_again(self._client)

    def _failed(self, operation: str, seconds: float, error_type: str) -> None:
        self.patience.failed()
        _duration.record(seconds, _attributes(operation) | {names.ERROR_TYPE: error_type})


async def _connect(client: Redis) -> None:
    """Have a connection in the client's pool if that is possible within ``CONNECT_TIMEOUT_S``."""
    pool = client.connection_pool
    with suppress(RedisError, OSError):
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            connection = await pool.get_connection()  # type: ignore[no-untyped-call]
            await pool.release(connection)


def _has_failure(answer: object) -> bool:
    """Return whether ``answer`` has the replies to several commands, one of which failed."""
    return isinstance(answer, list) and any(isinstance(each, Exception) for each in answer)


async def _unless_refused(name: str, command: Awaitable[Any]) -> Any:
    """Return the reply to the command ``name``; None if the server refuses it, for this user or, as
    managed services do, for all."""
    try:
        return await command
    except ResponseError as error:
        refused = command_in(error)
        if refused and not refused.startswith(name):
            raise  # the server refused to select the database, before this command ran
        return None


def _is_replaced(error: Exception) -> bool:
    """Return True if the server reports that it is a replica, or a primary without replicas, so
    that another may be the primary by now. Redis 6 reports READONLY within a script's error, and
    connections by Sentinel replace it by an error of their own."""
    says = str(error)
    return isinstance(error, ReadOnlyError) or (
        isinstance(error, RedisError) and any(reason in says for reason in _REPLACED)
    )


def _attributes(operation: str) -> dict[str, str]:
    return {names.DB_SYSTEM: names.REDIS, names.DB_OPERATION: operation}


@lru_cache(maxsize=1024)
def _durations(operation: str) -> Series:
    return _duration.series(_attributes(operation))
