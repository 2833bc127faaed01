"""What stores in Redis have in common: names of keys, a deadline for each call, errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ReadOnlyError, RedisError, ResponseError

from specmesh.serving import conventions as names
from specmesh.serving.settings import DEFAULT_PREFIX
from specmesh.serving.store.patience import StorePatience
from specmesh.serving.store.redis_durability import CONFIG_NAMES, Finding, judge
from specmesh.serving.store.store_log import StoreLog, command_in, is_refusal
from specmesh.serving.store.stored_session import StoreUnavailable

_duration = names.STORE_DURATION.instrument()


class RedisStore:
    """What one mesh keeps in one Redis, under keys that begin with ``prefix``. ``address`` is what
    the log calls it.

    Every call answers or raises StoreUnavailable within ``timeout_s``; whether it ran is unknown
    then. Bound to the event loop that it is first used on.
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
        self.patience = StorePatience()
        """How long it is worth waiting for the store."""

    @property
    def address(self) -> str:
        """The store's address, which holds no secret; empty if nobody has said it."""
        return self._log.address

    @property
    def trouble(self) -> str:
        """The reason for which the last command failed; empty if it was answered."""
        return self._log.trouble

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def ping(self) -> None:
        """Return if Redis answers, else raise StoreUnavailable."""
        await self._answer("ping", self._client.ping())

    async def durability(self) -> tuple[Finding, ...]:
        """What the server that answers now would lose. Raises StoreUnavailable."""
        info = await self._answer("info", _unless_refused("info", self._client.info()))
        if info is not None and info.get("loading"):
            # Valkey says "aof_enabled:0" until it has read its file.
            raise StoreUnavailable("Redis is loading what it keeps")
        config: dict[str, str] | None = {}
        for name in CONFIG_NAMES:
            asked = _unless_refused("config", self._client.config_get(name))
            reply = await self._answer("config", asked)
            config = None if reply is None or config is None else config | reply
        return judge(info, config)

    async def _answer(self, operation: str, command: Awaitable[Any]) -> Any:
        """Await a command's answer within the deadline, and learn how long the store takes."""
        now = asyncio.get_running_loop().time
        began = now()
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await command
        except TimeoutError as error:
            reason = f"no answer from Redis in {self._timeout_s:g} s"
            self._failed(operation, now() - began, "timeout")
            self._log.failed(operation, reason, now())
            raise StoreUnavailable(reason) from error
        except (RedisError, OSError) as error:
            self._failed(operation, now() - began, type(error).__name__)
            if is_refusal(error):
                self._log.refused(operation, str(error))
            else:
                self._log.failed(operation, str(error), now())
            if _is_replaced(error):
                # The next call finds the primary anew: by Sentinel, or by its name.
                await self._client.connection_pool.disconnect(inuse_connections=False)
            raise StoreUnavailable(f"Redis: {error}") from error
        self.patience.answered(now() - began)
        self._log.answered(operation)
        _duration.record(now() - began, _attributes(operation))
        return answer

    def _failed(self, operation: str, seconds: float, error_type: str) -> None:
        self.patience.failed()
        _duration.record(seconds, _attributes(operation) | {names.ERROR_TYPE: error_type})


async def _unless_refused(name: str, command: Awaitable[Any]) -> Any:
    """Return the reply to the command ``name``; None if this user may not ask, or nobody may, as
    in managed services."""
    try:
        return await command
    except ResponseError as error:
        refused = command_in(str(error))
        if refused and not refused.startswith(name):
            raise  # the connection was refused its database, before it came to this
        return None


def _is_replaced(error: Exception) -> bool:
    """Whether the server says that it is a replica, or a primary without replicas: another one may
    be the primary by now. Redis 6 says the former in the midst of a script's error."""
    if isinstance(error, ReadOnlyError):
        return True
    says = str(error)
    return isinstance(error, ResponseError) and ("READONLY" in says or "NOREPLICAS" in says)


def _attributes(operation: str) -> dict[str, str]:
    return {names.DB_SYSTEM: names.REDIS, names.DB_OPERATION: operation}
