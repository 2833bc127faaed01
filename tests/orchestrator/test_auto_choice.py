"""The policy of `auto`: which strategy for which mesh."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specmesh.decoding.predict.acceptance_rate import (
    DRAFTER,
    HEADS_CHAIN,
    HEADS_LEVELS,
    MeshAcceptance,
)
from specmesh.orchestrator.strategies.auto import choice as module
from specmesh.orchestrator.strategies.auto.choice import choose, expected_rates
from specmesh.orchestrator.strategies.events import Capacity

FLAT = Capacity(target_s=0.04, target_alone_s=0.04, drafter_s=0.002)
"""One replica that this answer has to itself, and a quick drafter."""
WITH_HEADS = replace(FLAT, heads_s=0.002, heads_depth=8)
STEEP_CROWD = replace(FLAT, target_token_s=0.04, period_s=0.04, num_verifiers=2)
"""A token takes as much from all answers as a verification takes."""


def rates(alpha: float, beta: float | None = None) -> MeshAcceptance:
    """The rates that all answers have taught: ``alpha`` of the drafter, ``beta`` of the heads."""
    found = MeshAcceptance()
    for source, rate in ((DRAFTER, alpha), (HEADS_CHAIN, beta), (HEADS_LEVELS, beta)):
        if rate is not None:
            found.rate(source).learn([n % 20 < 20 * rate for n in range(400)])
    return found


def chosen(capacity: Capacity, acceptance: MeshAcceptance, current: str | None = None) -> str:
    return choose(capacity, acceptance, current).strategy


def test_several_replicas_and_a_good_drafter_make_it_dsi():
    assert chosen(replace(FLAT, num_verifiers=4), rates(0.9)) == "dsi"


def test_the_heads_draft_where_they_are_right_and_the_drafter_is_not():
    assert chosen(WITH_HEADS, rates(0.1, 0.9)).startswith("heads")


def test_a_drafter_beside_heads_is_used_where_both_are_right():
    assert chosen(WITH_HEADS, rates(0.7, 0.85)) == "heads-and-drafter"


def test_a_bad_drafter_leaves_the_target_alone():
    assert chosen(replace(FLAT, drafter_s=0.03), rates(0.05)) == "autoregressive"


def test_a_crowd_for_which_tokens_are_dear_leaves_the_target_alone():
    assert chosen(STEEP_CROWD, rates(0.9)) == "autoregressive"


@pytest.mark.parametrize(
    "others", [{"period_s": 0.04, "num_sharing": 2.0}, {"num_waiting": 2.0}, None]
)
def test_a_small_gain_is_enough_to_draft(others):
    found, crowd = rates(0.5), replace(FLAT, **(others or {}))
    dearer = (replace(crowd, target_token_s=0.0002 * n) for n in range(100))
    gains = {each: max(expected_rates(each, found).values()) for each in dearer}
    dear = next(each for each, gain in gains.items() if 1.06 < gain < 1.09)
    assert chosen(dear, found) != "autoregressive"


def test_a_small_gain_is_not_enough_of_a_strategy_that_was_slower_than_expected(monkeypatch):
    found, names = rates(0.5), set()
    dearer = (replace(FLAT, target_token_s=0.0002 * n) for n in range(100))
    gains = {each: expected_rates(each, found) for each in dearer}
    monkeypatch.setattr(found.speeds, "correction", lambda _: 0.9)
    for each, of in gains.items():
        if 1.06 < 0.9 * max(of.values()) < 1.09:
            names.add(chosen(each, found))
    assert names == {"autoregressive"}


def test_alone_a_draft_is_tried_now_and_then():
    acceptance = rates(0.9)
    tries = [choose(STEEP_CROWD, acceptance, None) for _ in range(1000)]
    drafting = [each for each in tries if each.strategy != "autoregressive"]
    assert 0 < len(drafting) < 10
    assert {each.lookahead for each in drafting} == {1}


@pytest.mark.parametrize(
    ("capacity", "first"),
    [
        (Capacity(), "speculative"),
        (Capacity(heads_depth=4), "heads-and-drafter"),
        (replace(WITH_HEADS, knows_price=False), "heads-and-drafter"),
        (replace(FLAT, heads_depth=4), "heads-and-drafter"),
        (FLAT, "speculative"),
    ],
)
def test_what_is_not_known_is_measured_first(capacity, first):
    choice = choose(capacity, MeshAcceptance(), None)
    assert (choice.strategy, choice.tentative) == (first, True)


@pytest.mark.parametrize(
    ("capacity", "then"),
    [
        (FLAT, "tree"),
        (STEEP_CROWD, "autoregressive"),
        (replace(WITH_HEADS, drafter_s=0.05), "heads"),
    ],
)
def test_a_drafter_that_is_not_tried_meanwhile_is_judged_by_what_is_assumed_of_it(capacity, then):
    """It may be that its drafts don't seem to be worth the trial."""
    for num_tokens, tentative in ((0, True), (31, True), (32, False)):
        choice = choose(capacity, MeshAcceptance(), None, num_tokens=num_tokens)
        assert choice.tentative is tentative
    assert choice.strategy == then


def test_the_target_alone_does_not_tell_what_a_token_costs():
    unsure = replace(FLAT, knows_price=False)
    choice = choose(unsure, rates(0.9), "autoregressive")
    assert (choice.strategy, choice.lookahead, choice.tentative) == ("speculative", 1, True)
    assert chosen(unsure, rates(0.9), current="speculative") != "autoregressive"


def test_nothing_is_chosen_that_the_mesh_lacks():
    bare = Capacity(drafters=(), target_s=0.04)
    assert chosen(bare, rates(0.9, 0.9)) == "autoregressive"
    assert set(expected_rates(replace(WITH_HEADS, drafters=()), rates(0.9, 0.9))) == {"heads"}
    assert not {"heads", "heads-and-drafter"} & set(expected_rates(FLAT, rates(0.9, 0.9)))


@pytest.mark.parametrize(
    ("rate", "current", "then"),
    [
        (1.02, None, "autoregressive"),
        (1.02, "autoregressive", "autoregressive"),
        (1.02, "dsi", "autoregressive"),
        (1.02, "tree", "tree"),
        (0.98, "tree", "autoregressive"),
    ],
)
def test_drafts_are_kept_while_they_are_no_slower_than_the_target_alone(
    monkeypatch, rate, current, then
):
    monkeypatch.setattr(module, "expected_rates", lambda *_: {"tree": rate})
    assert chosen(FLAT, rates(0.8), current) == then


@pytest.mark.parametrize(("rate", "stays"), [(1.9, True), (1.7, False)])
def test_a_change_must_be_clearly_worth_it(monkeypatch, rate, stays):
    monkeypatch.setattr(module, "expected_rates", lambda *_: {"dsi": 2.0, "tree": rate})
    assert chosen(FLAT, rates(0.8), current="tree") == ("tree" if stays else "dsi")


def test_the_reason_names_the_expected_gain_and_the_next_best():
    reason = choose(replace(FLAT, num_verifiers=4), rates(0.9), None).reason
    assert "times the target alone" in reason
    assert "(exhaustive: " in reason


def test_a_gain_is_an_estimate_until_the_speed_has_been_measured(monkeypatch):
    found = rates(0.9)
    assert choose(FLAT, found, None).reason.startswith("it is estimated at")
    monkeypatch.setattr(found.speeds, "has_measured", lambda _: True)
    assert choose(FLAT, found, None).reason.startswith("by its measured speed it is expected at")


@pytest.mark.parametrize("num_verifiers", [1, 2, 8])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("token_s", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("period_s", [0.0, 0.04])
def test_rates_are_finite_and_better_drafts_are_no_worse(num_verifiers, alpha, token_s, period_s):
    capacity = replace(
        WITH_HEADS, num_verifiers=num_verifiers, target_token_s=token_s, period_s=period_s
    )
    for worse, better in ((alpha * 0.5, alpha), (alpha, min(1.0, alpha + 0.2))):
        low, high = (expected_rates(capacity, rates(each, each)) for each in (worse, better))
        assert all(0 < rate < 1000 for rate in high.values())
        assert max(high.values()) >= max(low.values()) - 1e-9


def test_trees_of_heads_are_as_wide_as_pays():
    """Second choices are right in half of the cases: they pay where tokens are cheap."""
    found = MeshAcceptance()
    for source, rate in ((DRAFTER, 0.1), (HEADS_CHAIN, 0.6), (HEADS_LEVELS, 0.8)):
        found.rate(source).learn([n % 20 < 20 * rate for n in range(400)])
    cheap = expected_rates(WITH_HEADS, found)["heads"]
    dear = expected_rates(replace(WITH_HEADS, target_token_s=0.012), found)["heads"]
    chains = rates(0.1, 0.6)
    assert cheap > 1.2 * expected_rates(WITH_HEADS, chains)["heads"]
    assert dear == expected_rates(replace(WITH_HEADS, target_token_s=0.012), chains)["heads"]


def test_a_drafter_that_is_busy_adds_little_to_heads():
    free = replace(WITH_HEADS, num_waiting=4.0, drafter_s=0.005)
    busy = replace(free, drafter_queue_s=0.036)
    gain = [
        expected_rates(each, rates(0.8, 0.6))["heads-and-drafter"]
        / expected_rates(each, rates(0.8, 0.6))["heads"]
        for each in (free, busy)
    ]
    assert gain[0] > 1.1 > gain[1]


@pytest.mark.parametrize(("period_s", "adds"), [(0.0, True), (0.04, False)])
def test_heads_add_to_dsi_unless_answers_share_the_replica(period_s, adds):
    several = replace(FLAT, num_verifiers=4, period_s=period_s)
    with_heads = replace(several, heads_s=0.002, heads_depth=8)
    found = rates(0.6, 0.8)
    gain = expected_rates(with_heads, found)["dsi"] / expected_rates(several, found)["dsi"]
    assert gain > 1.1 if adds else gain == 1.0


def test_a_strategy_that_turned_out_slower_gives_way():
    acceptance = rates(0.9)
    capacity = replace(FLAT, num_verifiers=4)
    assert chosen(capacity, acceptance) == "dsi"
    for now in range(2_000):
        timing = acceptance.speeds.times_alone
        strategy, expected = ("autoregressive", None) if timing else ("dsi", 3.0)
        acceptance.speeds.add(
            *(strategy, 1, 0.04),
            expected=expected,
            load=1.0,
            shares_host=True,
            now=now * 0.04,
        )
    assert chosen(capacity, acceptance) not in {"dsi", "autoregressive"}


def test_the_drafts_of_a_crowd_wait_for_the_drafter_to_be_done_with_the_first():
    alone, crowd = (replace(FLAT, drafter_s=0.012, num_sharing=each) for each in (1.0, 32.0))
    waits = replace(alone, drafter_queue_s=0.012 * 31 / 32)
    assert expected_rates(crowd, rates(0.8)) == expected_rates(waits, rates(0.8))
    assert (
        expected_rates(crowd, rates(0.8))["exhaustive"]
        < expected_rates(alone, rates(0.8))["exhaustive"]
    )
