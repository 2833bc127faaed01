"""A replica that names times which are none is left out, and nobody learns from them."""

from __future__ import annotations

import asyncio
from math import inf, nan

import pytest
from tests.orchestrator.answers import alone, collect, request
from tests.orchestrator.peers import Drafter, Verifier

from specmesh.decoding.errors import InvalidField
from specmesh.mesh.v1alpha1 import cost_pb2
from specmesh.orchestrator.replicas.calls.costs import read_cost

TIMES = ["queue_ms", "forward_ms", "grammar_ms", "computed_at_s"]
STRATEGIES = ["branch-prediction", "dsi"]


def costing(field, value):
    """Spoils the cost of a verdict or of levels."""
    return lambda message: setattr(message.cost, field, value)


@pytest.mark.parametrize("field", TIMES)
@pytest.mark.parametrize("value", [nan, inf, -inf, -1.0])
def test_a_time_is_finite_and_not_negative(field, value):
    with pytest.raises(InvalidField) as raised:
        read_cost(cost_pb2.ComputeCost(**{field: value}))
    assert raised.value.field == f"cost.{field}"


@pytest.mark.parametrize("field", TIMES)
def test_a_time_may_be_0_or_huge(field):
    for value in (0.0, 1e38):
        read_cost(cost_pb2.ComputeCost(**{field: value}))


async def answered(stub, strategy):
    """Ask for an answer of which every token must be right."""
    message = request(speculation={"strategy": strategy})
    answer = await asyncio.wait_for(collect(stub.Generate(message)), 20)
    assert answer.tokens == alone(message.sampling)


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_drafter_that_once_takes_such_a_time_spoils_no_later_answer(
    connect, serve, strategy
):
    drafter, spoilt = Drafter(), []
    drafter.level_ms = 1.0

    def once(message):
        if not spoilt:
            spoilt.append(message)
            message.cost.forward_ms = nan

    drafter.corrupt = once
    stub = await serve(await connect([Verifier()], [drafter]))
    for _ in range(3):
        await answered(stub, strategy)
    assert spoilt


@pytest.mark.parametrize("value", [nan, inf, -1.0])
async def test_a_verifier_that_takes_such_times_is_left_out(connect, serve, value):
    bad, good = Verifier(), Verifier()
    bad.corrupt = costing("forward_ms", value)
    stub = await serve(await connect([bad, good], [Drafter()]))
    for _ in range(3):
        await answered(stub, "speculative")
    assert len(bad.requests) < len(good.requests) / 3


async def test_a_drafter_that_takes_such_times_is_left_out(connect, serve):
    bad, good = Drafter(), Drafter()
    bad.corrupt = costing("queue_ms", inf)
    stub = await serve(await connect([Verifier()], [bad, good]))
    for _ in range(3):
        await answered(stub, "speculative")
    assert len(bad.requests) < len(good.requests) / 3


async def test_heads_that_take_such_times_cost_their_draft_alone(connect, serve):
    verifier, spoilt = Verifier(), []

    def spoil(message):
        if message.HasField("next_draft"):
            spoilt.append(message)
            message.next_draft.cost.forward_ms = inf

    verifier.corrupt = spoil
    stub = await serve(await connect([verifier]))
    await answered(stub, "heads")
    await answered(stub, "heads")
    assert spoilt


async def test_nobody_reads_a_draft_of_heads_that_was_not_asked_for(connect, serve):
    verifier = Verifier()

    def add_a_cycle(message):
        message.next_draft.token_ids[:], message.next_draft.parents[:] = [7], [1]

    verifier.corrupt = add_a_cycle
    stub = await serve(await connect([verifier]))
    await answered(stub, "autoregressive")
