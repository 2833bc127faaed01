"""A mesh that is asked for more than it can give goes on giving that, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from tests.orchestrator.admission.crowd import Crowd, Machine, Seen, run

from specmesh.orchestrator.admission.controller import MAX_WAIT_SECONDS
from specmesh.orchestrator.admission.room import FIRST_PER_REPLICA

WARM_UP_S = 5.0
SETTLED_S = 10.0
AT_ONCE_S = 0.1
CPU = Machine()
SLOW_CPU = Machine(fixed_s=0.1, per_call_s=0.02, prefix_s=0.1, draft_s=0.1)
GPU = Machine(fixed_s=0.4, per_call_s=0.002, kv_answers=1000)
ONE_BY_ONE = Machine(fixed_s=0.05, per_call_s=0.0, max_batch=1, kv_answers=1000)


@dataclass(frozen=True, slots=True)
class Shape:
    """A mesh, and how long its answers and the measurement are."""

    machine: Machine
    num_replicas: int
    num_orchestrators: int
    num_tokens: Sequence[int]
    seconds: float = 20.0
    factors: Sequence[float] = (1.5, 4)

    def crowd(self, *, open_door: bool = False) -> Crowd:
        sizes = self.num_replicas, self.num_orchestrators, self.num_tokens
        return Crowd(self.machine, *sizes, open_door=open_door)

    def capacity(self) -> float:
        """The answers a second of as many users as a mesh takes at first."""

        async def measured() -> float:
            crowd = self.crowd()
            await crowd.closed(FIRST_PER_REPLICA * self.num_replicas, WARM_UP_S + self.seconds)
            crowd.stop()
            return crowd.seen.goodput(WARM_UP_S, WARM_UP_S + self.seconds)

        return run(measured())

    def under(self, rate: float, *, open_door: bool = False) -> tuple[float, Seen, list[int]]:
        """The goodput while ``rate`` clients a second come, what they saw, and the rooms later."""

        async def measured() -> tuple[float, Seen, list[int]]:
            crowd = self.crowd(open_door=open_door)
            await crowd.poisson(rate, WARM_UP_S + self.seconds)
            goodput = crowd.seen.goodput(WARM_UP_S, WARM_UP_S + self.seconds)
            await asyncio.sleep(SETTLED_S)
            rooms = crowd.rooms
            await asyncio.sleep(0 if open_door else 60)
            assert open_door or not crowd.tasks
            crowd.stop()
            return goodput, crowd.seen, rooms

        return run(measured())


SHAPES = {
    "one orchestrator": Shape(CPU, 1, 1, [16]),
    "two orchestrators": Shape(CPU, 1, 2, [16]),
    "long answers": Shape(CPU, 1, 2, [64, 256], seconds=60),
    "eight replicas": Shape(GPU, 8, 1, [16], seconds=10, factors=(4,)),
    "eight replicas of two": Shape(SLOW_CPU, 8, 2, [16], seconds=10, factors=(4,)),
    "one call at a time": Shape(ONE_BY_ONE, 1, 2, [16], seconds=30),
}


def test_without_admission_the_mesh_collapses():
    shape = SHAPES["two orchestrators"]
    capacity = shape.capacity()
    goodput, _, _ = shape.under(2.4 * capacity, open_door=True)
    assert goodput < 0.3 * capacity


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_mesh_gives_what_it_can_at_any_load(shape: Shape):
    capacity = shape.capacity()
    for factor in shape.factors:
        goodput, seen, rooms = shape.under(factor * capacity)
        assert goodput >= 0.9 * capacity, factor
        assert not seen.num_late
        num_slow = sum(after_s > AT_ONCE_S for after_s in seen.refused_after_s)
        assert num_slow <= 0.01 * len(seen.refused_after_s), factor
        assert rooms == [FIRST_PER_REPLICA * shape.num_replicas] * shape.num_orchestrators


def burst(
    num_clients: int,
    num_orchestrators: int,
    num_tokens: int,
    *,
    limit: int | None = None,
    machine: Machine = CPU,
) -> Seen:
    """What clients see who all come at once, before anything has been measured."""

    async def come() -> Seen:
        crowd = Crowd(machine, 1, num_orchestrators, [num_tokens], limit=limit)
        await asyncio.gather(*(crowd.come() for _ in range(num_clients)))
        crowd.stop()
        return crowd.seen

    return run(come())


@pytest.mark.parametrize("num_tokens", [16, 64, 256, 2000])
def test_a_burst_from_nothing_measured_is_answered_or_refused_before_patience_ends(num_tokens):
    seen = burst(300, 2, num_tokens)
    assert len(seen.ended_at) + seen.num_late >= 2 * FIRST_PER_REPLICA
    assert max(seen.refused_after_s) <= MAX_WAIT_SECONDS


@pytest.mark.parametrize("num_tokens", [256, 2000])
def test_of_a_burst_of_long_answers_most_are_refused_once_it_is_known_how_fast_they_proceed(
    num_tokens,
):
    seen = burst(300, 2, num_tokens)
    assert len(seen.refused_after_s) >= 300 - 4 * FIRST_PER_REPLICA
    assert max(seen.refused_after_s) < 0.3 * MAX_WAIT_SECONDS


def test_many_short_answers_that_come_to_an_idle_mesh_at_once_are_all_given():
    """As those of one request to the gateway."""
    assert not burst(4 * FIRST_PER_REPLICA, 1, 16).refused_after_s


@pytest.mark.parametrize("limit", [2000, 100_000])
def test_many_short_answers_are_given_however_many_tokens_are_asked_for(limit):
    quick = Machine(fixed_s=0.01, per_call_s=0.0)
    assert not burst(6 * FIRST_PER_REPLICA, 1, 16, limit=limit, machine=quick).refused_after_s
