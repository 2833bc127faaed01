"""`filter` beside other requests, judged by the real confidence service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.orchestrator.answers import Answer, collect
from tests.orchestrator.peers import Drafter, Verifier
from tests.orchestrator.test_filter_generation import AGREEMENT, COUPLED, GREEDY, filtered
from tests.servers import running_server

from specmesh.confidence.__main__ import ConfidenceService, ConfidenceSettings

NUM_OTHERS = 4
LEARNING = {"escalation_rate": {"escalation_rate": 0.5}, "the service's default": {}}


@dataclass(frozen=True, slots=True)
class Served:
    """Where a service listens."""

    address: str


@pytest.fixture
async def confidence() -> AsyncIterator[Served]:
    settings = ConfidenceSettings()
    async with running_server(settings, ConfidenceService(settings)) as address:
        yield Served(address)


async def answers_around_others(connect, serve, confidence, sampling, options) -> list[Answer]:
    """The same request before and after others, each with a seed of its own."""
    mesh = await connect([Verifier()], [Drafter(agreement=AGREEMENT)], [confidence])
    stub = await serve(mesh)
    before = await collect(stub.Generate(filtered(sampling, **options)))
    for seed in range(NUM_OTHERS):
        others = {"temperature": 1.5, "seed": seed}
        await collect(stub.Generate(filtered(others, escalation_rate=0.5)))
    return [before, await collect(stub.Generate(filtered(sampling, **options)))]


@pytest.mark.parametrize("sampling", [GREEDY, COUPLED], ids=["greedy", "coupled"])
async def test_request_with_a_constant_threshold_gets_the_same_answer_again(
    confidence, connect, serve, sampling
):
    before, after = await answers_around_others(
        connect, serve, confidence, sampling, {"threshold": -0.4}
    )
    assert 0 < before.finished.stats.num_unchecked_tokens < len(before.tokens)
    assert after.tokens == before.tokens


@pytest.mark.parametrize("options", LEARNING.values(), ids=LEARNING)
async def test_request_for_a_share_may_get_another_answer_later(
    confidence, connect, serve, options
):
    before, after = await answers_around_others(connect, serve, confidence, COUPLED, options)
    assert after.tokens != before.tokens
