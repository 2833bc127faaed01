"""A mesh that vLLM computes for, target and drafter, says what one with our own engine says."""

import asyncio
import os
import random
from collections.abc import Iterator
from itertools import pairwise

import grpc
import pytest
from tests.conformance.calls import request, verify, whole
from tests.e2e.answers import LONG, all_of, answer, disturbed, said
from tests.e2e.processes import Process
from tests.orchestrator.goals import draw_options
from tests.scraping import Scraped, scrape
from tests.vllm import address_of, needs_vllm, start_vllm

from specmesh.client import AsyncClient
from specmesh.decoding.prefix import SALT_BYTES
from specmesh.orchestrator.strategies import LOSSLESS, STRATEGIES

pytestmark = needs_vllm

CACHE = ("--cache-bytes", str(64 << 20))
SAMPLINGS = (
    {"temperature": 0.0},
    {"temperature": 0.8, "seed": 23},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "seed": 5},
)
WITHOUT_HEADS = [name for name in LOSSLESS if not STRATEGIES[name].needs_heads]
NUM_RANDOM = 48


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[Process]]:
    """Two of the target, the second of which is for the last test to kill, and a drafter."""
    started = [start_vllm(*CACHE, "--metrics-address", "0") for _ in range(2)]
    started.append(start_vllm(*CACHE, role="drafter"))
    try:
        for replica in started:
            address_of(replica)
        yield started
    finally:
        for replica in started:
            replica.kill()


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
async def test_every_strategy_gives_the_same_answer(processes, client, prompts, replicas, sampling):
    *verifiers, drafter = replicas
    orchestrator = processes.orchestrator(verifiers, [drafter])
    options = {**sampling, "max_tokens": 48}
    async with AsyncClient(orchestrator.address) as own:
        for prompt in prompts[:2]:
            expected = await answer(client, prompt, **options, strategy="autoregressive")
            told = await all_of(
                *(answer(own, prompt, **options, strategy=strategy) for strategy in WITHOUT_HEADS),
                # A lookahead has drafts made also where they do not pay: beside other answers.
                answer(own, prompt, **options, strategy="tree", width=8, lookahead=4),
                answer(own, prompt, **options, strategy="branch-prediction", width=8, lookahead=4),
            )
            assert [said(each) for each in told] == [said(expected)] * len(told)
            assert sum(each.stats.num_accepted_tokens for each in told) > 0


async def test_replicas_of_both_engines_serve_one_target(
    mesh, processes, client, prompts, replicas
):
    """They have the same digest: an answer may go from one to the other, and what is a tree to one
    is a chain to the other."""
    both = [replicas[0], mesh.verifiers[0]]
    orchestrator = processes.orchestrator(both, [mesh.drafter])
    options = {"temperature": 0.8, "seed": 7, "max_tokens": 64}
    async with AsyncClient(orchestrator.address) as own:
        told = await all_of(
            answer(own, prompts[2], **options, strategy="dsi"),
            answer(own, prompts[2], **options, strategy="tree", width=8),
        )
    expected = await answer(client, prompts[2], **options, strategy="autoregressive")
    assert [said(each) for each in told] == [said(expected)] * 2


async def test_a_drafter_says_what_our_own_engine_drafts(mesh, processes, prompts, replicas):
    """The same target accepts as much of what each has drafted."""
    options = {"temperature": 0.8, "seed": 3, "max_tokens": 48, "lookahead": 4}
    stats = []
    for drafter in (replicas[2], mesh.drafter):
        orchestrator = processes.orchestrator(mesh.verifiers, [drafter])
        async with AsyncClient(orchestrator.address) as own:
            told = await answer(own, prompts[1], **options, strategy="speculative")
            stats.append((told.stats.num_verified_tokens, told.stats.num_accepted_tokens))
    assert stats[0] == stats[1]
    assert stats[0][1] > 0


async def test_a_shared_prefix_shows_in_what_prometheus_reads(replicas):
    """Of 300 tokens that are read twice the last alone is computed again. They take nine blocks of
    32 and the beginning of a tenth, which stay cached, as do others of other callers."""
    metrics = str(replicas[0].wait_event("metrics")["address"])
    text = random.Random(4).choices(range(3000), k=300)
    ours, theirs = os.urandom(SALT_BYTES), os.urandom(SALT_BYTES)
    seen = [kv_of(await scrape(metrics))]
    async with grpc.aio.insecure_channel(address_of(replicas[0])) as channel:
        for salt in (ours, ours, theirs):
            await verify(channel, request(whole(text, salt)))
            seen.append(kv_of(await scrape(metrics)))
    blocks = [{name: kv[name] for name in ("used", "cached", "free")} for kv in seen]
    assert {sum(states.values()) for states in blocks} == {sum(blocks[0].values())}
    assert [states["used"] for states in blocks] == [0] * len(blocks)
    growth = [
        {name: after[name] - before[name] for name in after} for before, after in pairwise(seen)
    ]
    assert [each["looked up"] for each in growth] == [300, 300, 300]
    assert [each["hits"] for each in growth] == [0, 299, 0]
    assert [each["cached"] for each in growth] == [10, 0, 10]


def kv_of(scraped: Scraped) -> dict[str, float]:
    """What it says of the KV cache."""
    states = ("used", "cached", "free")
    return {
        **{each: scraped.value("specmesh_kv_blocks", specmesh_state=each) for each in states},
        "looked up": scraped.value("specmesh_kv_prefix_tokens_total"),
        "hits": scraped.value("specmesh_kv_prefix_hits_total"),
    }


async def test_random_requests_get_the_targets_answer_while_a_replica_is_killed(
    processes, client, prompts, replicas
):
    *verifiers, drafter = replicas
    orchestrator = processes.orchestrator(verifiers, [drafter])
    rng = random.Random(21)
    answered = 0
    slots = asyncio.Semaphore(4)

    async def one(own, prompt, sampling, options):
        nonlocal answered
        async with slots:
            told = await answer(own, prompt, **sampling, **options)
        answered += 1
        if answered == NUM_RANDOM // 3:
            verifiers[1].kill()
        expected = await answer(client, prompt, **sampling, strategy="autoregressive")
        assert said(told) == said(expected), (sampling, options)

    async with AsyncClient(orchestrator.address) as own, asyncio.TaskGroup() as group:
        for _ in range(NUM_RANDOM):
            sampling = {**rng.choice(SAMPLINGS), "max_tokens": rng.randint(1, 40)}
            drawn = {name: value for name, value in draw_options(rng).items() if value is not None}
            options = {"strategy": rng.choice(WITHOUT_HEADS), **drawn}
            group.create_task(one(own, rng.choice(prompts), sampling, options))
    assert answered == NUM_RANDOM


async def test_an_answer_goes_on_when_its_replica_is_killed(
    mesh, processes, client, prompts, replicas
):
    """With a replica of our own engine, since that of vLLM takes its time to start."""
    both = [replicas[0], mesh.verifiers[0]]
    orchestrator = processes.orchestrator(both, [mesh.drafter])
    options = {**LONG, "temperature": 0.8, "seed": 23, "strategy": "dsi"}

    async def kill():
        replicas[0].kill()

    async with AsyncClient(orchestrator.address) as own, asyncio.timeout(60):
        told = await disturbed(own, prompts[1], kill, **options)
    assert said(told) == said(await answer(client, prompts[1], **options))
