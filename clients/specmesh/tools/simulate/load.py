"""A simulated mesh under load, shared by requests that arrive at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean

import numpy as np

from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.simulation.clock import Clock
from specmesh.simulation.mesh import MeshModel, SimulatedMesh
from specmesh.simulation.models import AcceptanceRates
from specmesh.simulation.run import Answered, poisson_s, simulate_on


@dataclass(frozen=True, slots=True)
class SimulatedLoad:
    """Requests for ``goal``, which start together, or as a Poisson process with ``rate_per_s``."""

    strategy: str
    goal: Goal
    num_requests: int = 1
    rate_per_s: float | None = None
    rates: AcceptanceRates = field(default_factory=AcceptanceRates)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Mean and quantiles over all requests, in seconds."""

    mean: float
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """The outcome of a simulated load. ``duration_s`` ends with the last answer; utilisations are
    shares of it."""

    duration_s: float
    latency_s: Quantiles
    first_token_s: Quantiles
    tokens_per_s: float
    """Throughput of all requests together."""
    num_tokens: int
    num_drafted_tokens: int
    num_verified_tokens: int
    """Draft tokens in verifications that were answered."""
    num_accepted_tokens: int
    num_wasted_tokens: int
    num_verify_calls: int
    verifier_utilisation: Sequence[float]
    drafter_utilisation: Sequence[float]


def run_load(load: SimulatedLoad, model: MeshModel) -> LoadOutcome:
    """Simulate a load. The same ``load.seed`` gives the same arrivals, texts and latencies."""
    mesh = SimulatedMesh(Clock(), model, load.seed)
    arrivals = [(at, STRATEGIES[load.strategy](load.goal)) for at in _arrivals_s(load)]
    prompts = [(number,) for number in range(load.num_requests)]
    models = load.rates.models(load.seed, len(model.costs.drafters))
    answers = simulate_on(mesh, arrivals, models, prompts=prompts)
    duration_s = mesh.clock.now
    num_tokens = sum(len(answer.token_ids) for answer in answers)
    return LoadOutcome(
        duration_s=duration_s,
        latency_s=_quantiles([answer.duration_s for answer in answers]),
        first_token_s=_quantiles([answer.first_token_s for answer in answers]),
        tokens_per_s=num_tokens / duration_s if duration_s else float("inf"),
        num_tokens=num_tokens,
        num_drafted_tokens=_total(answers, "num_drafted_tokens"),
        num_verified_tokens=_total(answers, "num_verified_tokens"),
        num_accepted_tokens=_total(answers, "num_accepted_tokens"),
        num_wasted_tokens=_total(answers, "num_wasted_tokens"),
        num_verify_calls=_total(answers, "num_verify_calls"),
        verifier_utilisation=[server.busy_s / duration_s for server in mesh.verifiers],
        drafter_utilisation=[server.busy_s / duration_s for server in mesh.drafters],
    )


def _arrivals_s(load: SimulatedLoad) -> Sequence[float]:
    if load.rate_per_s is None:
        return [0.0] * load.num_requests
    rng = Random(load.seed)  # noqa: S311 - a simulation must repeat
    return poisson_s(load.num_requests, load.rate_per_s, rng)


def _quantiles(values: Sequence[float]) -> Quantiles:
    p50, p99 = np.quantile(values, [0.5, 0.99])
    return Quantiles(fmean(values), float(p50), float(p99))


def _total(answers: Sequence[Answered], name: str) -> int:
    return sum(getattr(answer, name) for answer in answers)
