"""Redis behind TLS, and as an ACL user."""

from __future__ import annotations

import asyncio
import re
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis
from tests.serving.acl import COMMANDS, as_documented, rules
from tests.serving.conftest import RedisServer

from specmesh.orchestrator.__main__ import OrchestratorService
from specmesh.orchestrator.settings import OrchestratorSettings
from specmesh.serving.certs.authority import Authority
from specmesh.serving.certs.folder import bearers, make
from specmesh.serving.identity.watched import UnusableFile
from specmesh.serving.process.server import Server
from specmesh.serving.settings import RedisSettings, RedisTls
from specmesh.serving.startup import CannotStart
from specmesh.serving.store import lua
from specmesh.serving.store.prefix_directory import Beginnings, PrefixDirectory
from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import (
    Claim,
    Generated,
    SessionStart,
    StoreUnavailable,
    Writer,
)

DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    make(folder, "test.internal", bearers("test.internal", (), ()), DAY, force=False)
    return folder


@pytest.fixture
async def tls_port(redis_server: RedisServer, certs: Path) -> AsyncIterator[int]:
    """A port that speaks TLS, asks for a certificate, and hands on to the real Redis: the binary of
    the tests is built without TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certs / "ca.pem")
    context.load_cert_chain(certs / "gateway.pem", certs / "gateway-key.pem")
    context.verify_mode = ssl.CERT_REQUIRED

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await asyncio.open_connection("127.0.0.1", redis_server.port)
        await asyncio.gather(pump(reader, onward[1]), pump(onward[0], writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def works(store: SessionStore) -> bool:
    """Whether a session can go through all that happens to one, by the script and without it."""
    claim = Claim(uuid.uuid4().hex, b"secret", "owner")
    session, writer = SessionStart(claim, "m", b"request", (1, 2, 3)), Writer(1, "w")
    try:
        await store.ping()
        assert await store.begin(session, writer, Generated())
        await store.put(session, writer, Generated((4,)))
        await store.finish(session.session_id, writer, 1, "LENGTH")
        await store.append(session.session_id, writer, first_index=1, token_ids=[5])
        assert (await store.read(claim)).session == session
        assert await store.read_prefix(session.session_id, 4) == (1, 2, 3, 4)
        _, kept = await store.take(claim, 2, "v", Generated((4,)), exactly=True)
        assert kept == Generated((4,))
        await store.cancel(claim)
    except StoreUnavailable:
        return False
    finally:
        await store.aclose()
    return True


def tls(certs: Path, ca: str = "ca.pem") -> RedisTls:
    return RedisTls(certs / ca, certs / "orchestrator.pem", certs / "orchestrator-key.pem")


async def test_the_store_is_reached_over_tls_with_a_certificate(tls_port: int, certs: Path):
    url = as_documented(f"rediss://localhost:{tls_port}")
    assert await works(SessionStore.from_url(url, tls=tls(certs), timeout_s=10))
    assert await finds(PrefixDirectory.from_url(url, tls=tls(certs), timeout_s=10))


async def test_a_redis_that_another_ca_vouches_for_is_not_believed(tls_port: int, certs: Path):
    (certs / "other.pem").write_bytes(Authority.new("other.internal").own.certificate_pem)
    url = f"rediss://localhost:{tls_port}"
    assert not await works(SessionStore.from_url(url, tls=tls(certs, "other.pem"), timeout_s=10))
    assert not await works(SessionStore.from_url(url, timeout_s=10))


async def test_a_redis_under_another_name_is_not_believed(tls_port: int, certs: Path):
    url = f"rediss://127.0.0.2:{tls_port}"
    assert not await works(SessionStore.from_url(url, tls=tls(certs), timeout_s=10))


async def finds(directory: PrefixDirectory) -> bool:
    """Whether what is noted is found."""
    beginnings = Beginnings(b"first", (b"first", b"second"))
    try:
        await directory.note(beginnings, {"replica": 2})
        return await directory.find(beginnings) == {"replica": 2}
    except StoreUnavailable:
        return False
    finally:
        await directory.aclose()


@asynccontextmanager
async def user_of(server: RedisServer, *given: str) -> AsyncIterator[str]:
    """A user with these rules: the beginning of a URL, to which a database may be added."""
    user, password = uuid.uuid4().hex, uuid.uuid4().hex
    async with Redis.from_url(server.url) as admin:
        await admin.execute_command("ACL", "SETUSER", user, "on", f">{password}", *given)
        try:
            yield f"redis://{user}:{password}@127.0.0.1:{server.port}"
        finally:
            await admin.execute_command("ACL", "DELUSER", user)


@pytest.mark.parametrize("database", ["", "/1"])
async def test_an_acl_user_needs_its_keys_and_the_commands_in_the_docs(
    redis_server: RedisServer, database: str
):
    async with user_of(redis_server, *rules("mesh:*")) as server:
        url = server + database
        for prefix in ("mesh", "other"):
            store = SessionStore.from_url(url, prefix=prefix, timeout_s=10)
            directory = PrefixDirectory.from_url(url, prefix=prefix, timeout_s=10)
            assert await works(store) == await finds(directory) == (prefix == "mesh")
        store = SessionStore.from_url(url, prefix="mesh", timeout_s=10)
        assert not [each for each in await store.durability() if "refused" in each.text]
        await store.aclose()
        wrong = url.replace("@", "wrong@")
        assert not await works(SessionStore.from_url(wrong, prefix="mesh", timeout_s=10))


def test_the_docs_have_the_commands_that_are_sent_and_no_others():
    scripts = [path.read_text() for path in Path(lua.__path__[0]).glob("*.lua")]
    assert len(scripts) == 2
    called = re.compile(r"(?:call|pcall|on_sorted_set)\(\s*'([A-Z]+)'")
    in_scripts = {command.lower() for script in scripts for command in called.findall(script)}
    sent = {"evalsha", "script|load", "ping", "getrange", "select", "info", "config|get"}
    assert set(COMMANDS) == in_scripts | sent


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"redis_ca": "missing.pem"}, "--redis-ca .*missing.pem can't be used: .*No such file"),
        ({"redis_ca": "empty.pem"}, "--redis-ca .*empty.pem can't be used"),
        (
            {"redis_cert": "orchestrator.pem", "redis_key": "gateway-key.pem"},
            "--redis-cert .*orchestrator.pem with --redis-key .*gateway-key.pem can't be used",
        ),
    ],
)
def test_files_that_are_of_no_use_are_refused_by_name(
    certs: Path, files: dict[str, str], fault: str
):
    (certs / "empty.pem").touch()
    given = {key: certs / each for key, each in files.items()}
    with pytest.raises(UnusableFile, match=fault):
        RedisSettings(redis_url="rediss://x", **given).redis_tls.check()
    RedisSettings(redis_url="rediss://x", redis_ca=certs / "ca.pem").redis_tls.check()


async def test_a_process_does_not_start_with_a_file_that_is_of_no_use(certs: Path):
    settings = OrchestratorSettings(
        port=0,
        verifiers="127.0.0.1:1",
        redis_url="rediss://x",
        redis_ca=certs / "missing.pem",
    )
    server = Server(settings, OrchestratorService(settings))
    with pytest.raises(CannotStart, match=r"--redis-ca .*missing\.pem can't be used"):
        await server.start()


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"redis_url": "rediss://x", "redis_cert": "c"}, "--redis-cert and --redis-key"),
        ({"redis_url": "redis://x", "redis_ca": "c"}, "rediss:// URL"),
        ({"redis_ca": "c"}, "rediss:// URL"),
    ],
)
def test_files_that_would_not_be_used_are_refused(
    given: dict[str, str], fault: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("REDIS_URL", raising=False)
    with pytest.raises(ValueError, match=fault):
        RedisSettings(**given)
