"""Whole simulations: a mesh, some requests, and their answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from random import Random

from specmesh.orchestrator.strategies.base import Strategy
from specmesh.orchestrator.strategies.commands import Command, Commit, Finish
from specmesh.orchestrator.strategies.events import Event
from specmesh.simulation.clock import Clock
from specmesh.simulation.mesh import MeshModel, SimulatedMesh
from specmesh.simulation.models import VirtualModels
from specmesh.simulation.request import SimulatedRequest

Observe = Callable[[float, Command | Event], None]


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: ``token_ids``, and its times in seconds from the request's arrival."""

    token_ids: tuple[int, ...]
    first_token_s: float
    duration_s: float
    num_verify_calls: int
    """Verifications that were answered, further tokens included."""
    num_further_tokens: int
    num_verified_tokens: int
    """Draft tokens in verifications that were answered."""
    num_drafted_tokens: int
    num_accepted_tokens: int
    num_wasted_tokens: int


def simulate(
    strategy: Strategy,
    models: VirtualModels,
    mesh: MeshModel,
    *,
    prompt: Sequence[int] = (0,),
    seed: int = 0,
    observe: Observe | None = None,
) -> Answered:
    """Run one request alone on the mesh; ``seed`` determines latencies and faults."""
    simulated = SimulatedMesh(Clock(), mesh, seed)
    (answered,) = simulate_on(
        simulated, [(0.0, strategy)], models, prompts=[prompt], observe=observe
    )
    return answered


def simulate_on(
    mesh: SimulatedMesh,
    arrivals: Sequence[tuple[float, Strategy]],
    models: VirtualModels,
    *,
    prompts: Sequence[Sequence[int]],
    observe: Observe | None = None,
) -> list[Answered]:
    """Run requests that arrive at given seconds and share the mesh, each with its own strategy. The
    servers can be inspected afterwards."""
    requests = [
        SimulatedRequest(number, strategy, models, mesh, prompt, observe)
        for number, ((_, strategy), prompt) in enumerate(zip(arrivals, prompts, strict=True))
    ]
    for (arrival_s, _), request in zip(arrivals, requests, strict=True):
        mesh.clock.after(arrival_s, request.start)
    running = deque(requests)

    def done() -> bool:
        while running and running[0].reason is not None:
            running.popleft()
        return not running

    mesh.clock.run(done)
    return [_answered(request) for request in requests]


def crowd_tokens_per_s(
    mesh: SimulatedMesh,
    strategies: Iterator[Strategy],
    models: VirtualModels,
    *,
    begin_s: Sequence[float],
    num_tokens: int,
) -> float:
    """Return the tokens per second of a crowd: each of its members, the first time at one of
    ``begin_s``, asks again as soon as it has an answer. It ends with ``num_tokens`` tokens of all
    together, so that no member is ever idle.

    Answers take their strategies from ``strategies``, which must not end, and differ in their
    prompts."""
    prompts = count()
    left = num_tokens

    def begin() -> None:
        number = next(prompts)
        SimulatedRequest(number, next(strategies), models, mesh, (number,), observe).start()

    def observe(_now: float, what: Command | Event) -> None:
        nonlocal left
        match what:
            case Commit(token_ids=token_ids):
                left -= len(token_ids)
            case Finish():
                mesh.clock.after(0.0, begin)

    for at_s in begin_s:
        mesh.clock.after(at_s, begin)
    mesh.clock.run(lambda: left <= 0)
    return (num_tokens - left) / mesh.clock.now


def poisson_s(number: int, rate_per_s: float, rng: Random) -> list[float]:
    """Return the arrival times of a Poisson process, in seconds."""
    return list(accumulate(rng.expovariate(rate_per_s) for _ in range(number)))


def _answered(request: SimulatedRequest) -> Answered:
    stats = request.stats
    return Answered(
        token_ids=tuple(request.token_ids),
        first_token_s=request.commit_times_s[0] - request.began_s,
        duration_s=request.ended_s - request.began_s,
        num_verify_calls=stats.num_verify_calls,
        num_further_tokens=request.num_further_tokens,
        num_verified_tokens=stats.num_verified_tokens,
        num_drafted_tokens=stats.num_drafted_tokens,
        num_accepted_tokens=stats.num_accepted_tokens,
        num_wasted_tokens=stats.num_wasted_tokens,
    )
