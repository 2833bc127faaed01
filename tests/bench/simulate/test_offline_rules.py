"""The strategies on the virtual clock against the papers' counting rules."""

import pytest
from tests.simulation.meshes import mesh_of

from specmesh.decoding.predict.closed_forms import required_parallelism
from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Draft, Verify
from specmesh.simulation.models import CertainModels
from specmesh.simulation.run import simulate
from specmesh.tools.simulate.papers.offline import PROMPT, run_once
from specmesh.tools.simulate.papers.rules import (
    agreements,
    dsi_seconds,
    ideal_dsi_seconds,
    speculative_forwards,
)

TOKENS = 40


def drafter(acceptance, seed):
    return SimulatedDrafter(SimulatedTarget(seed), acceptance)


def pattern(acceptance, seed, num_tokens=TOKENS):
    return agreements(drafter(acceptance, seed), PROMPT, num_tokens)


def published_si(agree, lookahead, drafter_latency):
    """The loop of Appendix F.4, word for word; returns its cost and each iteration's start."""
    total_cost, total_toks, starts = 0.0, 0, []
    while total_toks < len(agree):
        starts.append(total_toks)
        window = [*agree[total_toks : total_toks + lookahead], False]
        num_accepted = min(window.index(False), lookahead)
        total_toks += num_accepted + 1
        total_cost += lookahead * drafter_latency + 1.0
    return total_cost, starts


@pytest.mark.parametrize("acceptance", [0, 0.3, 0.8, 1])
@pytest.mark.parametrize("lookahead", [1, 2, 5, 13, 200])
def test_si_takes_the_published_cost_less_what_overshoots_the_end(acceptance, lookahead):
    latency, agree = 0.3, pattern(acceptance, seed=1)
    cost, starts = published_si(agree, lookahead, latency)
    overshoot = sum(max(0, lookahead - (TOKENS - 1 - start)) for start in starts)
    time = run_once("speculative", lookahead, latency, acceptance, 1, TOKENS)
    assert time == pytest.approx(cost - overshoot * latency, rel=1e-9)


@pytest.mark.parametrize("acceptance", [0, 0.3, 0.8, 1])
@pytest.mark.parametrize("lookahead", [1, 5, 200])
def test_si_makes_just_the_forwards_that_the_rule_counts(acceptance, lookahead):
    rule = speculative_forwards(pattern(acceptance, seed=2), lookahead)
    seen = []
    one = drafter(acceptance, seed=2)
    simulate(
        STRATEGIES["speculative"](Goal(TOKENS, lookahead=lookahead)),
        CertainModels(one.target, (one,)),
        mesh_of(1.0, (0.1,)),
        prompt=PROMPT,
        observe=lambda now, what: seen.append(what),
    )
    assert rule.target == sum(isinstance(each, Verify) for each in seen)
    assert rule.drafter == sum(each.depth for each in seen if isinstance(each, Draft))


@pytest.mark.parametrize("latency", [0.15, 0.3, 0.6, 1])
@pytest.mark.parametrize("acceptance", [0, 0.5, 0.9, 1])
def test_dsi_with_replicas_enough_takes_just_what_proposition_1_sums_up(latency, acceptance):
    time = run_once("dsi", 1, latency, acceptance, 3, TOKENS)
    assert time == pytest.approx(ideal_dsi_seconds(pattern(acceptance, 3), latency, 1.0))


@pytest.mark.parametrize("acceptance", [0.2, 0.6, 0.95])
def test_the_mean_time_of_dsi_is_at_most_that_of_proposition_1(acceptance):
    latency, repeats = 0.2, 40
    agree = [pattern(acceptance, seed) for seed in range(repeats)]
    # The bound is linear in the acceptance rate, so it is exact for the rate that occurred.
    occurred = sum(sum(each[:-1]) for each in agree) / (repeats * (TOKENS - 1))
    assert occurred == pytest.approx(acceptance, abs=0.05)
    times = [run_once("dsi", 1, latency, acceptance, seed, TOKENS) for seed in range(repeats)]
    hidden = occurred * (TOKENS - 1)
    assert sum(times) / repeats <= hidden * latency + (TOKENS - hidden) * 1.0 + 1e-9


@pytest.mark.parametrize("latency", [0.03, 0.07])
@pytest.mark.parametrize("lookahead", [5, 8])
@pytest.mark.parametrize("acceptance", [0.3, 0.7, 0.9])
def test_dsi_under_equation_1_takes_what_its_rule_says(latency, lookahead, acceptance):
    assert required_parallelism(1.0, latency, lookahead) <= 7
    rule = dsi_seconds(pattern(acceptance, 4), lookahead, latency, 1.0)
    assert run_once("dsi", lookahead, latency, acceptance, 4, TOKENS) == pytest.approx(rule)


def test_equation_1_forgets_that_the_last_block_is_shorter():
    # Lookahead 15 keeps 7 replicas busy at 0, 0.15 .. 0.9; what is drafted at 0.99 must wait.
    assert required_parallelism(1.0, 0.01, 15) == 7
    assert dsi_seconds((True,) * 100, 15, 0.01, 1.0) == pytest.approx(1.99)
    assert run_once("dsi", 15, 0.01, 1.0, 0, 100) == pytest.approx(2.0)
    assert run_once("dsi", 20, 0.01, 1.0, 0, 100) == pytest.approx(1.99)
