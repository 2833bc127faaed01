"""The log says when and why a Redis can't be used, and when that is over."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, NoScriptError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from tests.metrics import Recorded, recorded  # noqa: F401 - a fixture
from tests.ports import free_port
from tests.serving.acl import COMMANDS, as_documented, rules
from tests.serving.conftest import RedisServer
from tests.serving.test_redis_access import user_of

from specmesh.serving.store import store_log
from specmesh.serving.store.prefix_directory import Beginnings, PrefixDirectory
from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.store_log import StoreLog, command_in, is_refusal
from specmesh.serving.store.stored_session import (
    Claim,
    Generated,
    SessionStart,
    StoreUnavailable,
    Writer,
)

ANYTHING = Beginnings(b"a", (b"b",))
AWAY = "store is away"
BACK = "store is back"
REFUSES = "store refuses a command"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the events in the log."""
    return [each.getMessage() for each in caplog.records]


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="specmesh")


@pytest.mark.parametrize("missing", ["time", "zrevrangebyscore", "evalsha"])
async def test_a_command_that_is_refused_is_an_error_with_its_name_once(
    redis_server: RedisServer,
    missing: str,
    caplog: pytest.LogCaptureFixture,
    recorded: Recorded,  # noqa: F811 - a fixture
):
    commands = tuple(command for command in COMMANDS if command != missing)
    async with user_of(redis_server, *rules("mesh:*", commands)) as url:
        directory = PrefixDirectory.from_url(url, prefix="mesh", timeout_s=10)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match=missing):
                await directory.find(ANYTHING)
        await directory.aclose()
    (record,) = caplog.records
    assert (record.getMessage(), record.levelname) == (REFUSES, "ERROR")
    assert vars(record)["command"] == missing
    assert vars(record)["operation"] == "find_prefix"
    assert vars(record)["store"] == f"127.0.0.1:{redis_server.port}"
    (point,) = recorded.points("specmesh.store.refusals")
    assert point.value == 3
    assert point.attributes == {
        "db.operation.name": "find_prefix",
        "specmesh.store.command": missing,
    }


async def test_a_refused_write_of_sessions_is_told_once_until_it_works(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
):
    session = SessionStart(Claim("s", b"secret", owner=""), model="", request=b"", prompt=(1, 2))
    commands = tuple(command for command in COMMANDS if command != "evalsha")
    async with user_of(redis_server, *rules("mesh:*", commands)) as url:
        store = SessionStore.from_url(url, prefix="mesh", timeout_s=10)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="evalsha"):
                await store.put(session, Writer(1, "writer"), Generated())
        await store.aclose()
    assert told(caplog) == [REFUSES]


async def test_a_database_that_may_not_be_chosen_is_told_once_by_that_name(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
):
    commands = tuple(command for command in COMMANDS if command != "select")
    async with user_of(redis_server, *rules("*", commands)) as url:
        store = SessionStore.from_url(f"{url}/1", timeout_s=10)
        for call in (store.durability, store.ping):
            with pytest.raises(StoreUnavailable, match="'select' command"):
                await call()
        await store.aclose()
    assert told(caplog) == [REFUSES]
    assert vars(caplog.records[0])["command"] == "select"


async def test_keys_that_are_not_its_users_are_told(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
):
    async with user_of(redis_server, *rules("other:*")) as url:
        directory = PrefixDirectory.from_url(url, prefix="mesh", timeout_s=10)
        with pytest.raises(StoreUnavailable):
            await directory.find(ANYTHING)
        await directory.aclose()
    assert told(caplog) == [REFUSES]
    assert "key" in vars(caplog.records[0])["reason"]


async def test_a_redis_that_is_away_is_told_with_address_and_reason_when_it_begins_and_ends(
    start_redis: Callable[[], RedisServer], caplog: pytest.LogCaptureFixture
):
    redis = start_redis()
    store = SessionStore.from_url(as_documented(redis.url), timeout_s=10)
    await store.ping()
    redis.kill()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await store.ping()
    assert store.trouble
    redis.start()
    for _ in range(2):
        await store.ping()
    await store.aclose()
    assert not store.trouble
    assert told(caplog) == [AWAY, BACK]
    away = vars(caplog.records[0])
    assert away["store"] == f"127.0.0.1:{redis.port}"
    assert away["levelname"] == "WARNING"


async def test_credentials_that_redis_refuses_are_no_outage_and_not_told(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
):
    store = SessionStore.from_url(f"redis://user:secret@127.0.0.1:{redis_server.port}")
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await store.ping()
    await store.aclose()
    assert told(caplog) == [REFUSES]
    record = vars(caplog.records[0])
    assert record["command"] == "auth"
    assert "invalid username-password pair" in record["reason"]
    assert "secret" not in str(record)


async def test_why_a_redis_can_not_be_reached_is_told_without_its_password(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
):
    port = free_port()
    address = f"127.0.0.1:{port}"
    urls = {
        f"redis://user:secret@{address}": f"connecting to {address}",
        f"redis+sentinel://user:secret@{address}/mesh": f"No master found for 'mesh' : {address}",
        "unix://user:secret@/nowhere/redis.sock": "No such file",
    }
    for url, reason in urls.items():
        caplog.clear()
        store = SessionStore.from_url(url, timeout_s=10)
        with pytest.raises(StoreUnavailable):
            await store.ping()
        await store.aclose()
        assert told(caplog) == [AWAY]
        assert reason in vars(caplog.records[0])["reason"]
        assert len(vars(caplog.records[0])["reason"]) < 100
        assert "secret" not in str(vars(caplog.records[0]))


def test_a_store_that_comes_and_goes_does_not_fill_the_log(caplog: pytest.LogCaptureFixture):
    store = StoreLog("redis:6379")
    for tenth in range(300):
        store.failed("append", "no answer", now=tenth / 10)
        store.answered("append")
    assert told(caplog) == [AWAY, BACK] * round(30 / store_log.QUIET_S)


async def test_a_full_redis_is_back_once_it_can_write_whatever_it_reads(
    start_redis: Callable[[], RedisServer], caplog: pytest.LogCaptureFixture
):
    redis = start_redis()
    store = SessionStore.from_url(as_documented(redis.url), timeout_s=10)
    session = SessionStart(Claim("s", b"secret", owner=""), model="", request=b"", prompt=(1, 2))
    writer = Writer(1, "writer")
    await store.put(session, writer, Generated())
    async with Redis.from_url(redis.url) as everything:
        await everything.config_set("maxmemory", "1")
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="maxmemory"):
                await store.append("s", writer, first_index=0, token_ids=[3])
            await store.ping()
        assert told(caplog) == [AWAY]
        await everything.config_set("maxmemory", "0")
    await store.append("s", writer, first_index=0, token_ids=[3])
    await store.aclose()
    assert told(caplog) == [AWAY, BACK]


def test_a_refusal_is_told_again_once_it_worked_in_between(caplog: pytest.LogCaptureFixture):
    no_set = NoPermissionError("User u has no permissions to run the 'set' command")
    store = StoreLog("redis:6379")
    store.refused("begin", no_set)
    store.refused("put", no_set)
    store.answered("begin")
    store.refused("begin", no_set)
    assert told(caplog) == [REFUSES] * 2


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (NoPermissionError("User u has no permissions to run the 'config|get' command"), None),
        (ResponseError("ACL failure in script: User u has no permissions to run the 'time' c"), ""),
        (ResponseError("Error running script: NOPERM this user has no permissions"), ""),
        (ResponseError("unknown command 'CONFIG', with args beginning with: 'GET'"), "config"),
        (ResponseError("unknown command `CONFIG`, with args beginning with:"), "config"),
        (AuthenticationError("Authentication required."), "auth"),
        (ResponseError("NOAUTH Authentication required."), ""),
        (ResponseError("Protocol error: unauthenticated multibulk length"), "auth"),
    ],
)
def test_servers_of_all_versions_are_understood(error: ResponseError, command: str | None):
    assert is_refusal(error)
    assert command_in(error) == ("config|get" if command is None else command)


@pytest.mark.parametrize(
    "error", [NoScriptError("No matching script."), RedisConnectionError("Connection refused.")]
)
def test_what_mends_itself_is_no_refusal(error: Exception):
    assert not is_refusal(error)
