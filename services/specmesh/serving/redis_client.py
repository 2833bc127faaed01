"""Connections to Redis whose calls are neither repeated nor timed here: their caller does both."""

from __future__ import annotations

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from specmesh.serving.settings import RedisTls


def connect(url: str, tls: RedisTls | None = None) -> Redis:
    """A client of ``redis://``, ``rediss://`` or ``unix://``; it connects when used."""
    files = (
        {}
        if tls is None
        else {
            "ssl_ca_certs": tls.ca,
            "ssl_certfile": tls.cert,
            "ssl_keyfile": tls.key,
        }
    )
    pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
        url,
        # A command whose answer was lost may have run: only the caller can tell
        # whether to repeat it.
        retry=Retry(NoBackoff(), 0),
        # One deadline over the whole call, ours, instead of one for each of its steps.
        timeout=None,
        socket_timeout=None,
        socket_connect_timeout=None,
        # Under RESP3 redis-py hands out pooled connections that the server has closed,
        # and after a restart each of them would fail one call.
        protocol=2,
        **{name: str(path) for name, path in files.items() if path is not None},
    )
    return Redis.from_pool(pool)
