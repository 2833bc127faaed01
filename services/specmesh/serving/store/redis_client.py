"""Connections to Redis whose calls are neither repeated nor timed here: their caller does both."""

from __future__ import annotations

from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, Connection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

from specmesh.serving.settings import RedisTls
from specmesh.serving.store.redis_url import SentinelUrl, is_by_sentinel

SENTINEL_TIMEOUT_S = 0.3
"""How long one Sentinel may take to name the primary. They are asked one after the other, the last
that answered first, so a caller's deadline must have room for those that are dead."""


def connect(url: str, tls: RedisTls | None = None) -> Redis:
    """A client of a URL that ``check_redis_url`` accepts; it connects when used.

    By Sentinel every new connection goes to whom Sentinel names then; connections to an earlier
    primary are given up.
    """
    settings = {**_SETTINGS, **_files(tls)}
    if not is_by_sentinel(url):
        one: BlockingConnectionPool = BlockingConnectionPool.from_url(url, **_UNTIMED, **settings)
        return Redis.from_pool(one)
    found = SentinelUrl.parse(url)
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        found.addresses,
        sentinel_kwargs={
            **settings,
            "ssl": found.tls,
            "username": found.sentinel_username,
            "password": found.sentinel_password,
            "socket_timeout": SENTINEL_TIMEOUT_S,
            "socket_connect_timeout": SENTINEL_TIMEOUT_S,
        },
    )
    pool = _PrimaryPool(  # type: ignore[no-untyped-call]
        found.service,
        sentinel,
        ssl=found.tls,
        db=found.database,
        username=found.username,
        password=found.password,
        **_UNTIMED,
        **settings,
    )
    return Redis.from_pool(pool)


class _PrimaryPool(SentinelConnectionPool, BlockingConnectionPool):
    """As many connections as a pool of one server has, to whom Sentinel names the primary."""

    async def release(self, connection: AbstractConnection) -> None:
        """Take a connection back. One to an earlier primary is closed: that server, once it goes
        on, takes itself for the primary until Sentinel tells it otherwise, which takes seconds."""
        assert isinstance(connection, Connection)
        if (connection.host, connection.port) != self.master_address:
            await connection.disconnect()
        await super().release(connection)

    async def aclose(self) -> None:
        """Close the connections, and those to the Sentinels."""
        await super().aclose()
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()


_SETTINGS: dict[str, Any] = {
    # A command whose answer was lost may have run: only the caller can tell whether to repeat it.
    "retry": Retry(NoBackoff(), 0),
    # Under RESP3 redis-py hands out pooled connections that the server has closed, and after a
    # restart each of them would fail one call.
    "protocol": 2,
}


# One deadline over the whole call, the caller's, instead of one for each of its steps.
_UNTIMED = dict.fromkeys(("timeout", "socket_timeout", "socket_connect_timeout"))


def _files(tls: RedisTls | None) -> dict[str, str]:
    if tls is None:
        return {}
    files = {"ssl_ca_certs": tls.ca, "ssl_certfile": tls.cert, "ssl_keyfile": tls.key}
    return {name: str(path) for name, path in files.items() if path is not None}
