"""A mesh whose replicas vLLM computes for says what one with our own engine says."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.e2e.answers import LONG, all_of, answer, disturbed, said
from tests.e2e.processes import Process
from tests.vllm import address_of, needs_vllm, start_vllm

from specmesh.client import AsyncClient, SpecmeshError

pytestmark = needs_vllm

CACHE = ("--cache-bytes", str(64 << 20))
SAMPLINGS = (
    {"temperature": 0.0},
    {"temperature": 0.8, "seed": 23},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "seed": 5},
)
CHAINS = ("autoregressive", "speculative", "dsi", "branch-prediction", "exhaustive")


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[Process]]:
    """Two; the second is for a test to kill, the last one."""
    started = [start_vllm(*CACHE) for _ in range(2)]
    try:
        for replica in started:
            address_of(replica)
        yield started
    finally:
        for replica in started:
            replica.kill()


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
async def test_every_strategy_that_sends_chains_gives_the_same_answer(
    mesh, processes, client, prompts, replicas, sampling
):
    orchestrator = processes.orchestrator(replicas, [mesh.drafter])
    options = {**sampling, "max_tokens": 48}
    async with AsyncClient(orchestrator.address) as own:
        for prompt in prompts[:2]:
            expected = await answer(client, prompt, **options, strategy="autoregressive")
            told = await all_of(
                *(answer(own, prompt, **options, strategy=strategy) for strategy in CHAINS)
            )
            assert [said(each) for each in told] == [said(expected)] * len(CHAINS)
            assert sum(each.stats.num_accepted_tokens for each in told) > 0


async def test_replicas_of_both_engines_serve_one_target(
    mesh, processes, client, prompts, replicas
):
    """They have the same digest: an answer may go from one to the other."""
    both = [replicas[0], mesh.verifiers[0]]
    orchestrator = processes.orchestrator(both, [mesh.drafter])
    options = {"temperature": 0.8, "seed": 7, "max_tokens": 64}
    async with AsyncClient(orchestrator.address) as own:
        told = await answer(own, prompts[2], **options, strategy="dsi")
    expected = await answer(client, prompts[2], **options, strategy="autoregressive")
    assert said(told) == said(expected)


async def test_trees_are_refused_by_name(mesh, processes, prompts, replicas):
    orchestrator = processes.orchestrator(replicas, [mesh.drafter])
    async with AsyncClient(orchestrator.address) as own:
        with pytest.raises(SpecmeshError, match="TREES"):
            await answer(own, prompts[0], strategy="tree", max_tokens=8, temperature=0)


@pytest.mark.parametrize("sampling", SAMPLINGS[1:2], ids=str)
async def test_a_replica_that_is_killed_during_an_answer_does_no_harm(
    mesh, processes, client, prompts, replicas, sampling
):
    orchestrator = processes.orchestrator(replicas, [mesh.drafter])
    options = {**LONG, **sampling, "strategy": "dsi"}

    async def kill():
        replicas[1].kill()

    async with AsyncClient(orchestrator.address) as own, asyncio.timeout(60):
        told = await disturbed(own, prompts[1], kill, **options)
    assert said(told) == said(await answer(client, prompts[1], **options))
