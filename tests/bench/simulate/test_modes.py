"""In every acceptance mode speculation is worth what the drafter is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.simulation.meshes import mesh_of

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.predict.closed_forms import acceptance_rate, coupled_acceptance_rate
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.simulated.overlapping import SimulatedPair
from specmesh.orchestrator.strategies import LOSSLESS, STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.simulation.models import SampledModels
from specmesh.simulation.run import simulate
from specmesh.tools.simulate.modes import (
    COLUMNS,
    GREEDY_ALPHAS,
    PAIRS,
    ModesRow,
    ModesSetting,
    figures,
    rows,
)

SETTING = ModesSetting(1000, 100, num_verifiers=7, num_tokens=40, seeds=range(11))
EACH_MODE = [row for row in rows() if row.alpha in {1.0, 0.74, 0.3, 0.05}]


@pytest.mark.parametrize("row", EACH_MODE, ids=lambda row: f"{row.mode.name} {row.alpha}")
def test_dsi_is_as_fast_as_the_better_of_the_others(row):
    """Theorems 1 and 2, with the bound that the command is held to."""
    found = figures(row, SETTING)
    assert found["dsi_s"] <= 1.02 * found["non_si_s"]
    if row.acceptance > SETTING.drafter_ms / SETTING.target_ms:
        assert found["dsi_s"] <= 1.02 * found["si_s"]


def test_a_chain_that_pauses_short_of_the_lookahead_is_verified():
    """By Equation 1 a verification would cover more tokens than are likely to stand."""
    setting = ModesSetting(1000, 1000 / 30, num_verifiers=2, num_tokens=100, seeds=range(9))
    found = figures(ModesRow(AcceptanceMode.REJECTION, 0.5, 0.1), setting)
    assert found["dsi_s"] <= 1.02 * min(found["si_s"], found["non_si_s"])


def test_there_are_pairs_enough_in_each_mode():
    for mode in AcceptanceMode:
        assert len({(r.alpha, r.overlap) for r in rows() if r.mode is mode}) >= 4
    assert len(GREEDY_ALPHAS) >= 4


@pytest.mark.parametrize("row", EACH_MODE, ids=lambda row: f"{row.mode.name} {row.alpha}")
@pytest.mark.parametrize("strategy", ["speculative", "branch-prediction", "exhaustive"])
def test_a_drafter_that_is_too_slow_to_be_worth_it_costs_next_to_nothing(row, strategy):
    """At c = 0.9 no answer of a strategy takes much longer than with the target alone."""
    mesh = mesh_of(1.0, (0.9,), num_verifiers=1)
    seconds = [
        simulate(STRATEGIES[strategy](Goal(150)), row.models(seed), mesh, prompt=(seed,)).duration_s
        for seed in range(2)
    ]
    assert max(seconds) <= 150 * 1.03


@pytest.mark.parametrize("strategy", ["dsi", "branch-prediction", "exhaustive"])
def test_a_bonus_token_drawn_without_regard_to_the_draft_would_be_seen(strategy, monkeypatch):
    """A drafter that is the target itself, whose draws hardly ever agree with it by chance."""
    row = ModesRow(AcceptanceMode.REJECTION, 1.0, 0.08)
    setting = replace(SETTING, seeds=range(5))

    def seconds() -> float:
        mesh = mesh_of(setting.target_ms / 1e3, (setting.drafter_ms / 1e3,), 7)
        answers = [
            simulate(
                STRATEGIES[strategy](Goal(40, lookahead=2)), row.models(seed), mesh, prompt=(seed,)
            )
            for seed in setting.seeds
        ]
        return sum(answer.duration_s for answer in answers)

    met, told = seconds(), SampledModels.verdict

    def without_bonus(self, context, command) -> Verdict:
        return replace(told(self, context, command), bonus=None)

    monkeypatch.setattr(SampledModels, "verdict", without_bonus)
    assert seconds() > 1.3 * met


@st.composite
def pairs(draw: st.DrawFn) -> SimulatedPair:
    alpha = draw(st.just(0.0) | st.floats(1e-3, 1))
    peak = draw(st.floats(0, 1))
    return SimulatedPair(alpha, min(alpha**2, alpha**2 / 32 + peak * alpha**2 * (31 / 32)))


@given(pairs())
def test_a_pair_is_as_like_as_was_asked_for(pair):
    p, q = pair.target_probabilities(), pair.draft_probabilities()
    assert (p.sum(), q.sum()) == pytest.approx((1, 1))
    assert min(p.min(), q.min()) >= 0
    assert acceptance_rate(p, q) == pytest.approx(pair.alpha, abs=1e-9)
    assert float((p * q).sum()) == pytest.approx(pair.overlap, abs=1e-9)
    coupled = coupled_acceptance_rate(p, q)
    assert pair.alpha / (2 - pair.alpha) - 1e-9 <= coupled <= pair.alpha + 1e-9


@pytest.mark.parametrize(
    ("alpha", "overlap", "field"),
    [(1.1, 0.5, "alpha"), (0.5, 0.3, "overlap"), (0.5, 0.001, "overlap"), (np.nan, 0, "alpha")],
)
def test_a_pair_that_cannot_be_is_refused_by_the_fields_name(alpha, overlap, field):
    with pytest.raises(InvalidField) as refused:
        SimulatedPair(alpha, overlap)
    assert refused.value.field == field


@settings(max_examples=40, deadline=None)
@given(
    pairs(),
    st.sampled_from([AcceptanceMode.COUPLED, AcceptanceMode.REJECTION]),
    st.sampled_from([0.01, 0.1, 0.6]),
    st.integers(1, 8),
    st.none() | st.integers(1, 6),
    st.integers(0, 2**64 - 1),
)
def test_dsi_is_never_slower_than_the_target_alone(pair, mode, drafter_s, sp, lookahead, seed):
    """Theorem 1 holds for every single answer, whatever was drawn. A single replica waits for
    drafts instead, unless the request has a lookahead."""
    assume(sp > 1 or lookahead is not None)
    models = SampledModels(pair, Sampling(seed=seed, mode=mode))
    mesh = mesh_of(1.0, (drafter_s,), sp)
    answer = simulate(STRATEGIES["dsi"](Goal(25, lookahead=lookahead)), models, mesh)
    assert answer.duration_s <= 25 * (1 + 1e-9)


@pytest.mark.parametrize("strategy", LOSSLESS)
def test_in_coupled_mode_every_strategy_says_what_the_target_alone_draws(strategy):
    row = ModesRow(AcceptanceMode.COUPLED, *PAIRS[2])
    mesh = mesh_of(1.0, (0.1,), 3)
    for seed in range(5):
        texts = {
            simulate(STRATEGIES[name](Goal(30)), row.models(seed), mesh).token_ids
            for name in (strategy, "autoregressive")
        }
        assert len(texts) == 1


def test_columns_name_strategies():
    assert set(COLUMNS.values()) <= set(STRATEGIES)
