"""Orchestrators that tell each other who holds which prefix, through a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from tests.orchestrator.answers import Answer, alone, collect, request
from tests.orchestrator.peers import Hold, Verifier
from tests.ports import free_port
from tests.serving.acl import as_documented
from tests.serving.test_script_pipeline import trips  # noqa: F401 - a fixture

from specmesh.orchestrator.replicas.prefixes import shared_holders
from specmesh.orchestrator.replicas.prefixes.holders import PrefixHolders
from specmesh.orchestrator.replicas.prefixes.prefix import CommittedPrefix, salt_of
from specmesh.orchestrator.replicas.prefixes.shared_holders import SharedHolders
from specmesh.serving.store.prefix_directory import PrefixDirectory

ASKED = list(range(1, 40))
HELD = 32
ALONE = {"strategy": "autoregressive"}

Share = Callable[[str], SharedHolders]


@pytest.fixture
async def share() -> AsyncIterator[Share]:
    """What one orchestrator shares through the Redis at a URL."""
    async with AsyncExitStack() as stack:

        def sharing(url: str, timeout_s: float = 10) -> SharedHolders:
            shared = SharedHolders(
                PrefixDirectory.from_url(as_documented(url), timeout_s=timeout_s)
            )
            stack.push_async_callback(shared.aclose)
            return shared

        yield sharing


@pytest.fixture
def _patient(monkeypatch) -> None:
    """A busy machine may answer late."""
    monkeypatch.setattr(shared_holders, "PATIENCE_SECONDS", 10.0)


async def first_turn_at(verifiers: list[Verifier], connect: Any, serve: Any, own: Any) -> Answer:
    """The answer to ``ASKED`` by the second verifier, while the first is busy, from an
    orchestrator that ends then."""
    hold = Hold()
    verifiers[0].faults.append(hold)
    stub = await serve(await connect(verifiers, holders=PrefixHolders(shared=own)))
    busy = asyncio.create_task(collect(stub.Generate(request(speculation=ALONE))))
    await hold.reached.wait()
    answer = await collect(stub.Generate(request(tokens={"ids": ASKED}, speculation=ALONE)))
    hold.released.set()
    await busy
    await own.aclose()
    for each in verifiers:
        each.requests.clear()
    return answer


async def next_turn_at(connect: Any, serve: Any, verifiers: Any, shared: Any, said: Any) -> Answer:
    """The answer to what another message after ``said`` asks, from a new orchestrator."""
    stub = await serve(await connect(verifiers, holders=PrefixHolders(shared=shared)))
    ids = [*ASKED, *said, 7, 8]
    return await collect(stub.Generate(request(tokens={"ids": ids}, speculation=ALONE)))


@pytest.mark.usefixtures("_patient")
async def test_a_new_orchestrator_sends_the_next_turn_to_who_holds_those_before(
    connect, serve, redis_server, share
):
    verifiers = [Verifier(), Verifier()]
    first = await first_turn_at(verifiers, connect, serve, share(redis_server.url))
    shared = share(redis_server.url)
    await next_turn_at(connect, serve, verifiers, shared, first.tokens)
    assert not verifiers[0].requests
    num_held = (len(ASKED) + len(first.tokens)) // 16 * 16
    assert verifiers[1].requests[0].prefix.base_length == num_held


@pytest.mark.usefixtures("_patient")
async def test_a_process_that_is_gone_is_not_taken_for_the_next_one_at_its_address(
    connect, serve, redis_server, share
):
    verifiers = [Verifier(), Verifier()]
    first = await first_turn_at(verifiers, connect, serve, share(redis_server.url))
    await verifiers[1].die()
    verifiers[1].forget()
    await verifiers[1].start()
    await next_turn_at(connect, serve, verifiers, share(redis_server.url), first.tokens)
    assert not verifiers[1].requests
    assert verifiers[0].requests[0].prefix.base_length == 0


@pytest.mark.usefixtures("_patient")
async def test_nobody_finds_the_prefix_of_another_identity(redis_server, share):
    tokens = list(range(200, 240))

    def prefix_of(identity: str, shared: SharedHolders, cache_salt: str = "") -> CommittedPrefix:
        holders = PrefixHolders(shared=shared)
        return CommittedPrefix("s", tokens, holders, salt_of(identity, cache_salt))

    alices = share(redis_server.url)
    prefix = prefix_of("alice", alices)
    prefix.seen_by("replica", len(tokens))
    await alices.aclose()
    holds = {}
    for identity in ("alice", "bob", ""):
        prefix = prefix_of(identity, share(redis_server.url))
        await prefix.learn(prefix.search(["replica"]))
        holds[identity] = prefix.holds
    assert holds == {"alice": {"replica": HELD}, "bob": {}, "": {}}
    salted = prefix_of("alice", share(redis_server.url), "of one project")
    await salted.learn(salted.search(["replica"]))
    assert salted.holds == {}
    assert len({salt_of(whose, salt) for whose in ("", "a", "b") for salt in ("", "a", "b")}) == 9


@pytest.mark.usefixtures("_patient")
async def test_a_prompt_is_noted_when_it_is_read_and_not_only_at_the_end(redis_server, share):
    """Its orchestrator may die in between."""
    tokens, own = list(range(500, 540)), share(redis_server.url)
    reading = CommittedPrefix("s", tokens, PrefixHolders(shared=own))
    reading.seen_by("replica", len(tokens))
    await own.aclose()
    prefix = CommittedPrefix("s", [*tokens, 1, 2], PrefixHolders(shared=share(redis_server.url)))
    await prefix.learn(prefix.search(["replica"]))
    assert prefix.holds == {"replica": HELD}


async def test_who_knows_a_holder_asks_nobody(redis_server, share):
    holders = PrefixHolders(shared=share(redis_server.url))
    known = CommittedPrefix("s", ASKED, holders)
    known.seen_by("replica", len(ASKED))
    known.close()
    assert CommittedPrefix("t", ASKED, holders).search(["replica", "another"]) is None
    assert CommittedPrefix("t", ASKED, holders).search(["another"]) is not None
    assert CommittedPrefix("t", [*ASKED, *ASKED], holders).search(["replica"]) is not None


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("garbage", [("ZADD", "inf", b"\xff\xfe"), ("SET", b"\xff\xfe")])
async def test_garbage_in_place_of_hints_fails_no_answer(
    connect, serve, redis_server, share, garbage
):
    command, *rest = garbage
    verifiers = [Verifier()]
    shared = share(redis_server.url)
    directory = shared._directory
    directory._prefix = uuid4().hex
    stub = await serve(await connect(verifiers, holders=PrefixHolders(shared=shared)))
    asked = request(tokens={"ids": ASKED}, speculation=ALONE)
    first = await collect(stub.Generate(asked))
    async with Redis.from_url(redis_server.url) as redis:
        keys = await redis.keys(f"{directory._prefix}:*:holders")
        assert keys
        for key in keys:
            await redis.delete(key)
            await redis.execute_command(command, key, *rest)
    stub = await serve(await connect(verifiers, holders=PrefixHolders(shared=shared)))
    for _ in range(3):
        assert (await collect(stub.Generate(asked))).tokens == first.tokens
    assert shared.is_prompt  # garbage is no sign that Redis is away


@pytest.mark.parametrize("step", ["find", "note"])
async def test_a_directory_that_breaks_fails_no_answer_and_is_logged_once(
    connect, serve, redis_server, share, monkeypatch, caplog, step
):
    async def broken(*args: object) -> None:
        raise LookupError("a fault of ours")

    shared = share(redis_server.url)
    monkeypatch.setattr(shared._directory, step, broken)
    stub = await serve(await connect([Verifier()], holders=PrefixHolders(shared=shared)))
    for first in (1, 2, 3):
        asked = request(tokens={"ids": [first, *ASKED]}, speculation=ALONE)
        await collect(stub.Generate(asked))
    await shared.aclose()
    logged = [each for each in caplog.records if "a fault of ours" in str(vars(each))]
    assert [each.levelname for each in logged] == ["ERROR"]


async def test_without_redis_answers_come_as_they_would_without_the_directory(
    connect, serve, share
):
    holders = PrefixHolders(shared=share(f"redis://127.0.0.1:{free_port()}"))
    stub = await serve(await connect([Verifier()], holders=holders))
    for _ in range(3):
        answer = await collect(stub.Generate(request(speculation=ALONE)))
        assert answer.tokens == alone(request().sampling)


async def test_redis_that_hangs_holds_up_one_answer_and_is_used_again_once_it_is_back(
    start_redis, share, monkeypatch
):
    redis = start_redis()
    own = share(redis.url, timeout_s=0.5)
    monkeypatch.setattr(shared_holders, "PATIENCE_SECONDS", 0.05)
    redis.pause()
    asked = CommittedPrefix("t", list(range(600, 700)), PrefixHolders(shared=own))
    first, second = asked.search([]), asked.search([])
    assert first is not None
    assert second is not None
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await first.result() == {}
    assert loop.time() - began > 0.04
    assert own._searches  # it isn't over when nobody waits for it any more
    async with asyncio.timeout(10):
        await asyncio.gather(*own._searches)  # both have failed by now
    probe = asked.search([])
    assert probe is not None
    assert asked.search([]) is None  # one is enough to learn that nothing has changed
    monkeypatch.setattr(shared_holders, "PATIENCE_SECONDS", 10.0)
    assert await probe.result() == {}
    assert own._searches  # it was not waited for
    redis.resume()
    other = CommittedPrefix("u", list(range(600, 700)), PrefixHolders(shared=own))
    other.seen_by("replica", other.length)
    async with asyncio.timeout(10):
        while not asked.holds:
            await asked.learn(asked.search([]))
            await asyncio.sleep(0.01)
    assert asked.holds == {"replica": 96}


@pytest.mark.usefixtures("_patient")
async def test_notes_of_many_answers_share_a_round_trip(redis_server, share, trips):  # noqa: F811
    own = share(redis_server.url)
    prompts = [[1_000 + n, *ASKED] for n in range(16)]
    for prompt in prompts:
        CommittedPrefix("s", prompt, PrefixHolders(shared=own)).seen_by("replica", len(prompt))
    await own.aclose()
    assert set(trips) == {16}
    assert len(trips) <= 2  # a new server gets the script first
    for prompt in prompts:
        asking = CommittedPrefix("t", prompt, PrefixHolders(shared=share(redis_server.url)))
        await asking.learn(asking.search([]))
        assert asking.holds == {"replica": HELD}
