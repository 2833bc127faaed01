"""Whether a Redis would lose sessions is seen from how it is configured, now and later."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis
from tests.serving.conftest import RedisServer

from specmesh.serving.startup import CannotStart
from specmesh.serving.store.redis_durability import Severity, judge
from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.store_watch import StoreWatch
from specmesh.serving.store.stored_session import StoreUnavailable

SAFE = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
GOOD_INFO = {"maxmemory": 0, "maxmemory_policy": "noeviction", "aof_enabled": 1, "role": "master"}
GOOD_CONFIG = {"appendfsync": "always", "min-replicas-to-write": "0"}


@pytest.fixture
def server(start_redis: Callable[[], RedisServer]) -> RedisServer:
    return start_redis()


@pytest.fixture
async def admin(server: RedisServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(server.url) as admin:
        for name, value in SAFE.items():
            await admin.config_set(name, value)
        yield admin


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[SessionStore]:
    store = SessionStore.from_url(server.url)
    yield store
    await store.aclose()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [getattr(record, "reason", record.message) for record in caplog.records]


async def until_said(caplog: pytest.LogCaptureFixture, beginning: str) -> None:
    async with asyncio.timeout(10):
        while not any(each.startswith(beginning) for each in said(caplog)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("info", "config", "begins"),
    [
        ({}, {}, []),
        ({"maxmemory_policy": "allkeys-lru"}, {}, []),  # nothing is evicted without a maxmemory
        ({"maxmemory": 1 << 30}, {}, []),
        ({"maxmemory": 1, "maxmemory_policy": "volatile-ttl"}, {}, ["maxmemory-policy volatile-t"]),
        ({"cluster_enabled": 1}, {}, ["cluster-enabled yes"]),
        ({"aof_enabled": 0}, {}, ["appendonly no"]),
        ({}, {"appendfsync": "everysec"}, ["appendfsync everysec"]),
        ({}, {"appendfsync": "no"}, ["appendfsync no"]),
        ({"role": "slave"}, {}, ["role replica"]),
        ({"connected_slaves": 2}, {}, ["min-replicas-to-write 0"]),
        ({"connected_slaves": 2}, {"min-replicas-to-write": "1"}, []),
        (
            {"aof_enabled": 0, "maxmemory": 1, "maxmemory_policy": "allkeys-lfu"},
            {},
            ["maxmemory-policy allkeys-lfu", "appendonly no"],
        ),
    ],
)
def test_what_is_found(info: dict[str, object], config: dict[str, str], begins: list[str]) -> None:
    found = judge({**GOOD_INFO, **info}, {**GOOD_CONFIG, **config})
    assert len(found) == len(begins)
    for finding, begin in zip(found, begins, strict=True):
        assert finding.text.startswith(begin)
        refused = begin.startswith(("maxmemory", "cluster"))
        assert (finding.severity is Severity.REFUSE) == refused


async def test_a_safe_redis_is_taken_without_a_word(
    store: SessionStore, admin: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await admin.config_get("appendfsync")) == {"appendfsync": "always"}
    watch = StoreWatch(store)
    await watch.start(refuses=True)
    await watch.stop()
    assert not said(caplog)


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-lru"])
async def test_a_redis_that_evicts_sessions_is_refused_by_name(
    store: SessionStore, admin: Redis, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    await admin.config_set("maxmemory", 100 << 20)
    await admin.config_set("maxmemory-policy", policy)
    with pytest.raises(CannotStart, match=f"maxmemory-policy {policy}: .*--redis-check warn"):
        await StoreWatch(store).start(refuses=True)
    caplog.clear()
    watch = StoreWatch(store)
    await watch.start(refuses=False)
    await watch.stop()
    (reason,) = said(caplog)
    assert reason.startswith(f"maxmemory-policy {policy}")


async def test_what_becomes_worse_later_is_said_once_and_refuses_nothing(
    store: SessionStore, admin: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watch = StoreWatch(store, period_s=0.01)
    await watch.start(refuses=True)
    await admin.config_set("maxmemory", 100 << 20)
    await admin.config_set("maxmemory-policy", "allkeys-lru")
    await until_said(caplog, "")
    await admin.config_set("maxmemory", 0)
    await until_said(caplog, "store keeps sessions")
    await watch.stop()
    assert [each.partition(":")[0] for each in said(caplog)] == [
        "maxmemory-policy allkeys-lru",
        "store keeps sessions",
    ]
    assert caplog.records[0].levelname == "ERROR"


async def test_a_redis_that_is_away_is_looked_at_when_it_is_back(
    store: SessionStore, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(server.kill)
    watch = StoreWatch(store, period_s=0.01)
    await watch.start(refuses=True)
    assert [each.getMessage() for each in caplog.records] == ["store is away"]
    await asyncio.to_thread(server.start)
    await until_said(caplog, "appendfsync no")
    await watch.stop()


async def test_a_redis_that_still_loads_is_not_judged(
    store: SessionStore, server: RedisServer, admin: Redis
) -> None:
    async with admin.pipeline(transaction=False) as pipeline:
        for number in range(5_000):
            pipeline.set(f"key {number}", number)
        await pipeline.execute()
    await asyncio.to_thread(server.kill)
    starting = asyncio.create_task(asyncio.to_thread(server.start, "--key-load-delay", "100"))
    outcomes = []
    while not starting.done():
        try:
            outcomes += [each.text for each in await store.durability()]
        except StoreUnavailable as error:
            outcomes.append(str(error))
        await asyncio.sleep(0.001)
    assert any("is loading" in each for each in outcomes)
    assert not any("appendonly" in each for each in outcomes)


async def test_a_service_that_forbids_to_look_is_taken_and_it_is_said(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    user = uuid.uuid4().hex
    async with Redis.from_url(redis_server.url) as admin:
        rules = ["on", "nopass", "~*", "+@all", "-config"]
        await admin.execute_command("ACL", "SETUSER", user, *rules)
        try:
            store = SessionStore.from_url(f"redis://{user}:any@127.0.0.1:{redis_server.port}")
            watch = StoreWatch(store)
            await watch.start(refuses=True)
            await watch.stop()
            assert store.patience.seconds > 0  # a refusal is not an outage
            await store.aclose()
        finally:
            await admin.execute_command("ACL", "DELUSER", user)
    assert [each.partition(":")[0] for each in said(caplog)] == ["CONFIG GET is refused"]
