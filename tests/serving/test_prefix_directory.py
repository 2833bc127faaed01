"""What the prefix directory promises, against a real Redis."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis
from tests.serving.acl import as_documented

from specmesh.decoding.prefix import PrefixChain
from specmesh.serving.store import prefix_directory
from specmesh.serving.store.prefix_directory import Beginnings, PrefixDirectory
from specmesh.serving.store.stored_session import StoreUnavailable

if TYPE_CHECKING:
    from tests.serving.conftest import RedisServer

SHORT_S = 0.3


def beginnings(salt: bytes = b"", num_blocks: int = 4) -> Beginnings:
    """Of the same tokens, whoever asks."""
    digests = PrefixChain(range(16 * num_blocks), salt).digests
    return Beginnings(digests[0], tuple(digests))


@pytest.fixture
async def directory(redis_server: RedisServer) -> AsyncIterator[PrefixDirectory]:
    directory = PrefixDirectory.from_url(
        as_documented(redis_server.url), timeout_s=10, prefix=uuid.uuid4().hex
    )
    yield directory
    await directory.aclose()


async def test_whoever_looks_for_a_prefix_finds_who_holds_how_much_of_it(directory):
    await directory.note(beginnings(), {"most": 4, "half": 2})
    await directory.note(beginnings(num_blocks=1), {"least": 1})
    assert await directory.find(beginnings()) == {"most": 4, "half": 2, "least": 1}
    assert await directory.find(beginnings(num_blocks=3)) == {"most": 3, "half": 2, "least": 1}
    assert await directory.find(beginnings(num_blocks=1)) == {"most": 1, "half": 1, "least": 1}


async def test_the_same_tokens_under_another_salt_are_another_prefix(directory):
    await directory.note(beginnings(b"a" * 32), {"replica": 4})
    assert await directory.find(beginnings(b"b" * 32)) == {}
    assert await directory.find(beginnings()) == {}
    assert await directory.find(beginnings(b"a" * 32)) == {"replica": 4}


async def test_each_lease_ends_by_itself_although_others_go_on(redis_server):
    prefix = uuid.uuid4().hex
    brief = PrefixDirectory.from_url(
        as_documented(redis_server.url), prefix=prefix, lease_s=SHORT_S
    )
    patient = PrefixDirectory.from_url(as_documented(redis_server.url), prefix=prefix, timeout_s=10)
    await brief.note(beginnings(), {"gone": 4})
    await patient.note(beginnings(), {"here": 2})
    async with asyncio.timeout(10):
        while "gone" in (found := await patient.find(beginnings())):  # noqa: ASYNC110
            await asyncio.sleep(SHORT_S / 10)
    assert found == {"here": 2}
    await patient.note(beginnings(num_blocks=1), {"another": 1})
    async with Redis.from_url(redis_server.url) as redis:
        keys = await redis.keys(f"{prefix}:*")
        assert len(keys) == 2  # nobody holds the longer ones any more
        shortest = next(key for key in keys if beginnings().digests[0].hex() in key.decode())
        assert set(await redis.zrange(shortest, 0, -1)) == {b"here", b"another"}
    for each in (brief, patient):
        await each.aclose()


async def test_of_many_holders_the_latest_are_kept_and_those_that_hold_most_are_told(
    directory, monkeypatch
):
    monkeypatch.setattr(prefix_directory, "MAX_REPLICAS", 3)
    for number in range(5):
        await directory.note(beginnings(num_blocks=1), {f"replica {number}": 1})
        await asyncio.sleep(0.002)  # leases are told apart by the millisecond
    held_by = {f"replica {number}": 1 for number in (2, 3, 4)}
    assert await directory.find(beginnings()) == held_by
    for number in (10, 11, 12):
        await directory.note(beginnings(), {f"replica {number}": 4})
    assert set(await directory.find(beginnings())) == {f"replica {n}" for n in (10, 11, 12)}


GARBAGE: dict[str, tuple[str | bytes | float, ...]] = {
    "a name that is no UTF-8": ("ZADD", "inf", b"\xff\xfe"),
    "a name that is empty": ("ZADD", "inf", b""),
    "a name as long as a book": ("ZADD", "inf", b"x" * 1_000_000),
    "more names than replicas are kept": (
        *("ZADD",),
        *(word for number in range(1000) for word in (2.0**52 + number, f"nobody {number}")),
    ),
    "a value that is no sorted set": ("SET", b"\xff\xfe"),
}


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_under_one_key_hides_nothing_of_what_the_others_hold(
    directory, redis_server, garbage
):
    command, *rest = GARBAGE[garbage]
    everywhere = beginnings()
    await directory.note(beginnings(num_blocks=3), {"replica": 3})
    async with Redis.from_url(redis_server.url) as redis:
        await redis.execute_command(command, directory._keys(everywhere)[3], *rest)
        found = await directory.find(everywhere)
    assert found.pop("replica") == 3
    assert len(found) <= prefix_directory.MAX_REPLICAS
    assert all(replica.startswith("nobody ") for replica in found)


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_note_takes_the_place_of_garbage(directory, redis_server, garbage):
    command, *rest = GARBAGE[garbage]
    async with Redis.from_url(redis_server.url) as redis:
        for key in directory._keys(beginnings()):
            await redis.execute_command(command, key, *rest)
        await directory.note(beginnings(), {"replica": 4})
        assert await directory.find(beginnings()) == {"replica": 4}


async def test_redis_that_hangs_or_is_away_is_said_so_in_time(start_redis):
    redis = start_redis()
    directory = PrefixDirectory.from_url(as_documented(redis.url), timeout_s=0.2)
    await directory.note(beginnings(), {"replica": 4})
    redis.pause()
    with pytest.raises(StoreUnavailable):
        await directory.find(beginnings())
    redis.resume()
    redis.kill()
    with pytest.raises(StoreUnavailable):
        await directory.note(beginnings(), {"replica": 4})
    redis.start_empty()
    async with asyncio.timeout(10):
        assert await directory.find(beginnings()) == {}
    await directory.aclose()
