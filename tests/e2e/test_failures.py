"""Processes killed in the middle of an answer; the reader never notices."""

import asyncio
import signal

import pytest
from redis import Redis
from tests.e2e.answers import LONG, answer, disturbed, said

from specmesh.client import AsyncClient
from specmesh.serving.store.session_store import SessionStore


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 0.8, "seed": 23}])
async def test_a_killed_orchestrators_answer_is_carried_on_by_another(
    mesh, processes, client, prompts, sampling
):
    options = {**LONG, **sampling}
    flags = ("--redis-url", mesh.redis_url)
    first, second = (
        processes.orchestrator(mesh.verifiers, [mesh.drafter], *flags) for _ in range(2)
    )
    undisturbed = await answer(client, prompts[0], **options)

    async def kill():
        first.kill()

    async with AsyncClient(first.address, second.address) as both:
        resumed = await disturbed(both, prompts[0], kill, **options)
    assert said(resumed) == said(undisturbed)
    assert (resumed.num_resumes, resumed.epoch, resumed.resumable) == (1, 2, True)
    assert resumed.finish_reason == undisturbed.finish_reason


async def test_a_frozen_orchestrators_answer_is_carried_on_within_seconds(
    mesh, processes, client, prompts
):
    flags = ("--redis-url", mesh.redis_url)
    first, second = (
        processes.orchestrator(mesh.verifiers, [mesh.drafter], *flags) for _ in range(2)
    )
    undisturbed = await answer(client, prompts[0], **LONG)

    async def freeze():
        first.send(signal.SIGSTOP)

    async with AsyncClient(first.address, second.address) as both, asyncio.timeout(20):
        resumed = await disturbed(both, prompts[0], freeze, **LONG)
    assert said(resumed) == said(undisturbed)
    assert resumed.num_resumes >= 1


@pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_verifier_that_dies_or_hangs_during_an_answer_does_no_harm(
    mesh, processes, client, prompts, harm
):
    flags = ("--redis-url", mesh.redis_url)
    victim = processes.verifier(*flags)
    # Of equally busy replicas the first is taken, and then the one that holds the prefix.
    orchestrator = processes.orchestrator([victim, mesh.verifiers[0]], [mesh.drafter], *flags)
    undisturbed = await answer(client, prompts[1], **LONG)

    async def strike():
        victim.send(harm)

    async with AsyncClient(orchestrator.address) as own, asyncio.timeout(30):
        result = await disturbed(own, prompts[1], strike, **LONG)
    victim.kill()
    assert said(result) == said(undisturbed)
    assert result.num_resumes == 0


async def test_a_killed_drafter_costs_only_speed(mesh, processes, client, prompts):
    victim = processes.drafter()
    orchestrator = processes.orchestrator(mesh.verifiers, [victim], "--redis-url", mesh.redis_url)
    drafting = {**LONG, "strategy": "speculative"}
    undisturbed = await answer(client, prompts[2], **drafting)

    async def kill():
        victim.kill()

    async with AsyncClient(orchestrator.address) as own:
        assert said(await disturbed(own, prompts[2], kill, **drafting)) == said(undisturbed)
        # And so it stays until a drafter comes back.
        undrafted = await answer(own, prompts[2], **drafting)
    assert said(undrafted) == said(undisturbed)
    assert undrafted.stats.num_verified_tokens == 0


REJECTION = {"temperature": 0.8, "seed": 5, "acceptance_mode": "rejection"}


async def test_no_two_answers_are_joined_where_redis_hung_before_the_orchestrator_died(
    mesh, processes, prompts
):
    """In rejection mode another orchestrator would go on with other tokens from an older place."""
    redis, redis_url = processes.redis()
    first, second = (
        processes.orchestrator(mesh.verifiers, [mesh.drafter], "--redis-url", redis_url)
        for _ in range(2)
    )
    async with AsyncClient(first.address, second.address) as both:
        stream = both.generate(prompts[0], **{**LONG, **REJECTION})
        num_tokens = 0
        async for chunk in stream:
            if num_tokens < 10 <= num_tokens + len(chunk.token_ids):
                redis.send(signal.SIGSTOP)
                await asyncio.sleep(0.4)
                redis.send(signal.SIGCONT)
            if num_tokens < 70 <= num_tokens + len(chunk.token_ids):
                first.kill()
            num_tokens += len(chunk.token_ids)
        result = stream.result
    assert result.num_resumes == 1
    store = SessionStore.from_url(redis_url, timeout_s=10)
    stored = await store.read_prefix(result.session_id, 1 << 20)
    await store.aclose()
    assert stored[result.stats.num_prompt_tokens :] == result.token_ids


async def test_without_redis_an_answer_completes_and_says_it_was_not_resumable(
    mesh, processes, client, prompts
):
    redis, redis_url = processes.redis()
    orchestrator = processes.orchestrator(mesh.verifiers, [mesh.drafter], "--redis-url", redis_url)
    undisturbed = await answer(client, prompts[3], **LONG)
    assert undisturbed.resumable

    async def kill():
        redis.kill()

    async with AsyncClient(orchestrator.address) as own:
        result = await disturbed(own, prompts[3], kill, **LONG)
    assert said(result) == said(undisturbed)
    assert not result.resumable
    assert result.num_resumes == 0


@pytest.mark.parametrize("check", ["refuse", "warn"])
def test_an_orchestrator_says_that_its_redis_evicts_sessions(processes, check):
    _, url = processes.redis()
    with Redis.from_url(url, username="admin", password="") as admin:
        admin.config_set("maxmemory", 100 << 20)
        admin.config_set("maxmemory-policy", "allkeys-lru")
    nobody = ("--verifiers", "127.0.0.1:1")
    orchestrator = processes.service(
        "orchestrator", *nobody, "--redis-url", url, "--redis-check", check
    )
    event = "cannot start" if check == "refuse" else "store may lose sessions"
    assert "maxmemory-policy allkeys-lru" in orchestrator.wait_event(event)["reason"]
    if check == "refuse":
        assert orchestrator.wait_exit() == 1
