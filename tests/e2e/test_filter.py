"""The strategy `filter` on real models and processes, up to 32 sessions at once."""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.e2e.answers import said
from tests.e2e.processes import Process

from specmesh import models
from specmesh.client import AsyncClient, Filter, GenerationResult

NUM_SESSIONS = 32
SHORT = {"max_tokens": 24, "temperature": 0.0, "ignore_end_of_text": True}


@dataclass(frozen=True, slots=True)
class Filtered:
    """An orchestrator of the shared mesh that knows a confidence service."""

    confidence: Process
    orchestrator: Process


@pytest.fixture
def filtered(mesh, processes) -> Iterator[Filtered]:
    flags = ("--redis-url", mesh.redis_url)
    confidence = processes.service("confidence")
    orchestrator = processes.orchestrator(
        mesh.verifiers, [mesh.drafter], *flags, confidence=[confidence]
    )
    assert orchestrator.address
    return Filtered(confidence, orchestrator)


async def answer(client: AsyncClient, prompt: str, threshold: float | None) -> GenerationResult:
    """The answer of strategy filter, or without a threshold of the target alone."""
    filtered = {"strategy": "filter", "filter": Filter(threshold=threshold)}
    chosen = {"strategy": "autoregressive"} if threshold is None else filtered
    stream = client.generate(prompt, **SHORT, **chosen)
    await stream
    return stream.result


async def test_thresholds_at_the_ends_give_each_models_own_text(
    mesh, processes, filtered, client, prompts
):
    # The drafter's own text: a mesh whose target it is.
    alone = processes.service("verifier", "--model", str(models.path(models.DRAFTER)))
    async with (
        AsyncClient(filtered.orchestrator.address) as own,
        AsyncClient(processes.orchestrator([alone], []).address) as small,
    ):
        for prompt in prompts[:4]:
            nothing_kept = await answer(own, prompt, math.inf)
            assert said(nothing_kept) == said(await answer(client, prompt, None))
            assert nothing_kept.unchecked == ()
            all_kept = await answer(own, prompt, -math.inf)
            assert said(all_kept) == said(await answer(small, prompt, None))
            assert all_kept.unchecked == tuple(range(SHORT["max_tokens"]))
            assert all_kept.stats.num_verify_calls == 0


async def test_confidence_service_killed_under_load_loses_nothing(
    mesh, processes, filtered, client, prompts
):
    chosen = [prompts[number % len(prompts)] for number in range(NUM_SESSIONS)]
    async with AsyncClient(filtered.orchestrator.address) as own, asyncio.TaskGroup() as group:
        first = own.generate(chosen[0], **SHORT, strategy="filter", filter=Filter(threshold=-0.7))
        begun = asyncio.Event()

        async def read() -> GenerationResult:
            async for _ in first:
                begun.set()
            return first.result

        reading = group.create_task(read())
        others = [group.create_task(answer(own, prompt, -0.7)) for prompt in chosen[1:]]
        await begun.wait()
        assert not all(task.done() for task in others)
        filtered.confidence.kill()
        results = [await reading, *[await task for task in others]]
        # From here on nothing is kept, since nobody says that it may be.
        after = await answer(own, chosen[0], -math.inf)
    assert all(len(result.token_ids) == SHORT["max_tokens"] for result in results)
    assert any(result.unchecked for result in results)
    assert said(after) == said(await answer(client, chosen[0], None))
    assert after.unchecked == ()
