"""The session store by Sentinel, and behind a name that comes to mean another server.

What a failover does to answers: ``tests/bench/test_failover.py``.
"""

from __future__ import annotations

import asyncio
import re
import signal
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis
from tests.ports import free_port
from tests.serving.acl import DOCS, as_documented
from tests.serving.conftest import RedisServer
from tests.serving.test_redis_access import certs, tls, works  # noqa: F401 - certs is a fixture

from specmesh.cli.local.redis import redis_binary
from specmesh.serving.store import redis_client
from specmesh.serving.store.redis_client import connect
from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import (
    Claim,
    Generated,
    SessionStart,
    StoreUnavailable,
    Writer,
)

SERVERS_PASSWORD = "servers'"
SENTINELS_PASSWORD = "sentinels'"
WRITER = Writer(1, "writer")


def session(name: str) -> SessionStart:
    return SessionStart(Claim(name, b"secret", ""), "", b"", (1,))


class Sentinel:
    """A Sentinel that knows one server as ``mesh``."""

    def __init__(self, folder: Path, server: RedisServer, *settings: str) -> None:
        self.port = free_port()
        config = folder / f"sentinel-{self.port}.conf"
        monitor = f"sentinel monitor mesh 127.0.0.1 {server.port} 1"
        lines = (f"port {self.port}", "bind 127.0.0.1", f"dir {folder}", monitor, *settings)
        config.write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen(
            [redis_binary(), str(config), "--sentinel"], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert any(b"+monitor" in line for line in self.process.stdout)


@pytest.fixture
def start_sentinel(tmp_path: Path) -> Iterator[Callable[..., Sentinel]]:
    started = []

    def start(server: RedisServer, *settings: str) -> Sentinel:
        started.append(Sentinel(tmp_path, server, *settings))
        return started[-1]

    yield start
    for each in started:
        with each.process as process:
            process.kill()


@asynccontextmanager
async def passing_on(
    to: Callable[[], int],
    context: ssl.SSLContext | None = None,
    replies: tuple[bytes, bytes] = (b"", b""),
) -> AsyncIterator[int]:
    """A port whose connections go to the port that ``to`` names when they are made; in what comes
    back, ``replies[0]`` is replaced."""

    async def pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, old: bytes, new: bytes
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data.replace(old, new) if old else data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await asyncio.open_connection("127.0.0.1", to())
        await asyncio.gather(pump(reader, onward[1], b"", b""), pump(onward[0], writer, *replies))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_sentinel_names_the_primary_and_a_database(
    redis_server: RedisServer, start_sentinel: Callable[..., Sentinel]
) -> None:
    sentinel = start_sentinel(redis_server)
    named = as_documented(f"redis+sentinel://127.0.0.1:{sentinel.port}/mesh/3")
    assert await works(SessionStore.from_url(named))
    async with Redis.from_url(f"{redis_server.url}/3") as third:
        assert await third.dbsize()
        await third.flushdb()
    other = SessionStore.from_url(f"redis+sentinel://127.0.0.1:{sentinel.port}/other")
    with pytest.raises(StoreUnavailable, match="No master found for 'other'"):
        await other.ping()
    await other.aclose()


async def test_a_user_of_the_sentinels_needs_what_the_docs_say_and_a_refusal_is_told(
    redis_server: RedisServer,
    start_sentinel: Callable[..., Sentinel],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (command,) = re.findall(
        r"A user of the Sentinels needs ([A-Z ]+) and no keys", DOCS.read_text()
    )
    for granted in (command.lower().replace(" ", "|"), "ping"):
        sentinel = start_sentinel(redis_server, f"user mesh on >secret -@all +{granted}")
        url = as_documented(f"redis+sentinel://127.0.0.1:{sentinel.port}/mesh")
        store = SessionStore.from_url(f"{url}?sentinel_username=mesh&sentinel_password=secret")
        assert await works(store) == (granted != "ping")
    (record,) = caplog.records
    assert (record.levelname, vars(record)["command"]) == ("ERROR", "sentinel|masters")
    assert "secret" not in vars(record)["reason"]


async def test_sentinels_that_are_dead_or_frozen_are_passed_over(
    redis_server: RedisServer, start_sentinel: Callable[..., Sentinel]
) -> None:
    frozen, living = start_sentinel(redis_server), start_sentinel(redis_server)
    frozen.process.send_signal(signal.SIGSTOP)
    num_asked = 0

    def frozen_port() -> int:
        nonlocal num_asked
        num_asked += 1
        return frozen.port

    async with passing_on(frozen_port) as before_it:
        listed = ",".join(f"127.0.0.1:{port}" for port in (free_port(), before_it, living.port))
        store = SessionStore.from_url(f"redis+sentinel://{listed}/mesh")
        await store.ping()
        assert num_asked == 1
        await asyncio.gather(*(store.ping() for _ in range(3)))  # on connections of their own
        assert num_asked == 1  # the living one is asked first now
        await store.aclose()


async def test_servers_and_sentinels_have_passwords_of_their_own(
    start_redis: Callable[[], RedisServer], start_sentinel: Callable[..., Sentinel]
) -> None:
    server = start_redis()
    async with Redis.from_url(server.url) as admin:
        await admin.config_set("requirepass", SERVERS_PASSWORD)
    sentinel = start_sentinel(
        server,
        f'sentinel auth-pass mesh "{SERVERS_PASSWORD}"',
        f'requirepass "{SENTINELS_PASSWORD}"',
    )
    at = f"127.0.0.1:{sentinel.port}/mesh"
    for user, parameter, right in (
        (f":{SERVERS_PASSWORD}@", f"?sentinel_password={SENTINELS_PASSWORD}", True),
        (f":{SERVERS_PASSWORD}@", "", False),
        (f":{SERVERS_PASSWORD}@", "?sentinel_password=wrong", False),
        ("", f"?sentinel_password={SENTINELS_PASSWORD}", False),
    ):
        store = SessionStore.from_url(f"redis+sentinel://{user}{at}{parameter}")
        assert await works(store) == right, (user, parameter)


async def test_tls_is_for_sentinels_and_servers_alike(
    redis_server: RedisServer,
    start_sentinel: Callable[..., Sentinel],
    certs: Path,  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A busy machine may take longer for both ends of a handshake than a Sentinel is given.
    monkeypatch.setattr(redis_client, "SENTINEL_TIMEOUT_S", 10.0)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certs / "ca.pem")
    context.load_cert_chain(certs / "gateway.pem", certs / "gateway-key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    sentinel = start_sentinel(redis_server)
    async with passing_on(lambda: redis_server.port, context) as primary:
        # The binary of the tests is built without TLS, so a Sentinel can't name this port itself.
        named = str(redis_server.port).encode(), str(primary).encode()
        assert len(named[0]) == len(named[1])
        async with passing_on(lambda: sentinel.port, context, named) as at:
            url = f"rediss+sentinel://localhost:{at}/mesh"
            assert await works(SessionStore.from_url(url, tls=tls(certs), timeout_s=10))
            assert not await works(SessionStore.from_url(url, timeout_s=10))


@pytest.mark.parametrize("how", ["demoted", "without replicas"])
async def test_a_name_that_means_another_server_by_now_is_looked_up_again(
    start_redis: Callable[[], RedisServer], how: str
) -> None:
    old, new = start_redis(), start_redis()
    primary = old
    async with passing_on(lambda: primary.port) as port:
        store = SessionStore.from_url(f"redis://127.0.0.1:{port}")
        await asyncio.gather(*(store.ping() for _ in range(5)))  # so many connections to the old
        async with Redis.from_url(old.url) as admin:
            if how == "demoted":
                await admin.execute_command("REPLICAOF", "127.0.0.1", str(new.port))
            else:
                await admin.config_set("min-replicas-to-write", 1)
        primary = new
        with pytest.raises(
            StoreUnavailable, match="read only replica" if how == "demoted" else "NOREPLICAS"
        ):
            await store.put(session("0"), WRITER, Generated())
        await asyncio.gather(*(store.put(session(str(n)), WRITER, Generated()) for n in range(5)))
        await store.aclose()
    async with Redis.from_url(new.url) as admin:
        assert await admin.exists(*(f"specmesh:{{{n}}}:session" for n in range(5))) == 5


@pytest.mark.parametrize("how", ["demoted", "without replicas"])
async def test_a_sentinel_that_is_behind_is_not_asked_first_again(
    start_redis: Callable[[], RedisServer], start_sentinel: Callable[..., Sentinel], how: str
) -> None:
    old, new = start_redis(), start_redis()
    ports = [start_sentinel(each).port for each in (old, new, new)]
    async with Redis.from_url(old.url) as admin:
        if how == "demoted":
            await admin.execute_command("REPLICAOF", "127.0.0.1", str(new.port))
        else:
            await admin.config_set("min-replicas-to-write", 1)
    at = ",".join(f"127.0.0.1:{port}" for port in ports)
    store = SessionStore.from_url(f"redis+sentinel://{at}/mesh", timeout_s=10)
    puts = (store.put(session(str(n)), WRITER, Generated()) for n in range(6))
    refused = await asyncio.gather(*puts, return_exceptions=True)
    assert {type(each) for each in refused} == {StoreUnavailable}
    await store.put(session("s"), WRITER, Generated())
    await store.aclose()
    async with Redis.from_url(new.url) as admin:
        assert await admin.exists("specmesh:{s}:session")


async def test_connections_that_are_made_together_forget_no_sentinel(
    redis_server: RedisServer, start_sentinel: Callable[..., Sentinel]
) -> None:
    up, up_too = (start_sentinel(redis_server).port for _ in range(2))
    down = free_port()
    client = connect(
        "redis+sentinel://" + ",".join(f"127.0.0.1:{p}" for p in (down, up, up_too)) + "/mesh"
    )
    await asyncio.gather(*(client.ping() for _ in range(5)))
    pool = client.connection_pool
    assert isinstance(pool, redis_client._PrimaryPool)
    known = [
        each.connection_pool.connection_kwargs["port"] for each in pool.sentinel_manager.sentinels
    ]
    assert known == [up, down, up_too]
    await client.aclose()


async def test_a_connection_that_was_busy_when_the_primary_changed_is_given_up(
    start_redis: Callable[[], RedisServer], start_sentinel: Callable[..., Sentinel]
) -> None:
    old, new = start_redis(), start_redis()
    sentinel = start_sentinel(old)
    client = connect(f"redis+sentinel://127.0.0.1:{sentinel.port}/mesh")
    async with (
        Redis.from_url(old.url) as before,
        Redis(port=sentinel.port) as watching,
        Redis.from_url(new.url) as after,
    ):
        busy = asyncio.create_task(client.execute_command("BLPOP", "list", 0))
        while not (await before.info())["blocked_clients"]:
            pass
        await watching.execute_command("SENTINEL", "REMOVE", "mesh")
        await watching.execute_command("SENTINEL", "MONITOR", "mesh", "127.0.0.1", new.port, 1)
        await client.set("first", 1)  # on a connection of its own, so to whom Sentinel names now
        await before.rpush("list", "done")
        await busy
        await client.set("second", 2)  # the connection that was used last is used first
        assert await after.exists("first", "second") == 2
    await client.aclose()
