"""Connections to Redis without retries and timeouts of their own: callers have both.

They pack commands by hiredis. redis-py's other client does so, too; its asynchronous one packs each
argument by a dozen calls of Python, a tenth of all that an orchestrator does for a token.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from hiredis import pack_command
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, Connection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

from specmesh.serving.settings import RedisTls
from specmesh.serving.store.redis_url import SentinelUrl, is_by_sentinel

SENTINEL_TIMEOUT_S = 0.3
"""The timeout for one Sentinel to name the primary. They are asked one after the other, beginning
with the last that answered unless the server that it named was no primary, so a caller's deadline
must allow for those that are dead."""


def connect(url: str, tls: RedisTls | None = None) -> Redis:
    """Return a client for a URL that ``check_redis_url`` accepts; it connects when used.

    With Sentinel, every new connection goes to the primary that Sentinel names at that time;
    connections to an earlier primary are closed.
    """
    settings = {**_SETTINGS, **_files(tls)}
    if not is_by_sentinel(url):
        one: BlockingConnectionPool = BlockingConnectionPool.from_url(url, **_UNTIMED, **settings)
        one.connection_class = _packing(one.connection_class)
        return Redis.from_pool(one)
    found = SentinelUrl.parse(url)
    sentinel = _Sentinels([])  # type: ignore[no-untyped-call]
    sentinel.sentinels = [
        _OneSentinel(
            host=host,
            port=port,
            ssl=found.tls,
            username=found.sentinel_username,
            password=found.sentinel_password,
            socket_timeout=SENTINEL_TIMEOUT_S,
            socket_connect_timeout=SENTINEL_TIMEOUT_S,
            **settings,
        )
        for host, port in found.addresses
    ]
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
    pool.connection_class = _packing(pool.connection_class)
    return Redis.from_pool(pool)


async def look_up_again(client: Redis) -> None:
    """Have new connections look their server up, by its host name or, if there are several, by
    another Sentinel: the one that named this server may be behind, or cut off from the others."""
    pool = client.connection_pool
    if isinstance(pool, _PrimaryPool):
        pool.sentinel_manager.doubt()
    await pool.disconnect(inuse_connections=False)


class _Sentinels(Sentinel):
    """Sentinels in the order in which they are asked."""

    _believed: Redis | None = None
    """The one that has named the primary; it is asked first."""

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the address of the primary. Raises ``MasterNotFoundError``."""
        # The original swaps entries of the list, which loses some if connections are made together.
        asked = copy(self)
        asked.sentinels = list(self.sentinels)
        address: tuple[str, int] = await Sentinel.discover_master(asked, service_name)
        self._believed = asked.sentinels[0]
        self.sentinels.sort(key=lambda each: each is not self._believed)
        return address

    def doubt(self) -> None:
        """Ask the Sentinel that has named the primary only after all others."""
        self.sentinels.sort(key=lambda each: each is self._believed)


class _OneSentinel(Redis):
    """A client of one Sentinel. Errors about the primary have the ``repr`` of each that failed."""

    def __repr__(self) -> str:
        where = self.connection_pool.connection_kwargs
        return f"{where['host']}:{where['port']}"


class _Packing:
    """Packs commands for a connection."""

    def pack_command(self, name: str, *args: Any) -> list[bytes]:
        """Return the bytes of a command, whose ``name`` may have several words."""
        return [pack_command((*name.split(), *args))]


def _packing(connection_class: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return a class of such connections that pack commands by hiredis."""
    return type(f"Packing{connection_class.__name__}", (_Packing, connection_class), {})


class _PrimaryPool(SentinelConnectionPool, BlockingConnectionPool):
    """A blocking pool, like that for one server, of connections to the primary by Sentinel."""

    async def release(self, connection: AbstractConnection) -> None:
        """Take a connection back, or close it if it leads to an earlier primary. When such a server
        resumes, it acts as the primary for seconds, until Sentinel demotes it."""
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
    # A command whose reply was lost may have run: only the caller knows if a retry is safe.
    "retry": Retry(NoBackoff(), 0),
    # With RESP3, redis-py hands out pooled connections that the server has closed, and after a
    # restart each of them would fail one call.
    "protocol": 2,
}


# The caller has one deadline over the whole call, instead of a timeout for each step.
_UNTIMED = dict.fromkeys(("timeout", "socket_timeout", "socket_connect_timeout"))


def _files(tls: RedisTls | None) -> dict[str, str]:
    if tls is None:
        return {}
    files = {"ssl_ca_certs": tls.ca, "ssl_certfile": tls.cert, "ssl_keyfile": tls.key}
    return {name: str(path) for name, path in files.items() if path is not None}
