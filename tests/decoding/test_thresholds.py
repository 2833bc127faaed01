"""Where the line runs between kept and escalated, and that a share asked for is held."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.predict.confidence import CALIBRATED, SCORERS
from specmesh.decoding.predict.thresholds import (
    ENOUGH,
    WINDOW,
    Constant,
    EscalationRate,
    FilterOptions,
    FollowLoad,
    RecentScores,
)

SCORES = st.floats(-50, 50)
SHARES = st.floats(0, 1)


def seen(scores):
    recent = RecentScores()
    for score in scores:
        recent.add(score)
    return recent


def escalated(scores, threshold):
    return sum(not score > threshold for score in scores) / len(scores)


@given(st.lists(SCORES, max_size=100), st.floats(allow_nan=False), st.floats(0, 1))
def test_constant_stays_where_it_is(scores, threshold, load):
    assert seen(scores).threshold(Constant(threshold), load) == threshold


@given(st.lists(SCORES, min_size=ENOUGH, max_size=300), SHARES)
def test_asked_share_of_the_window_is_escalated_and_no_more_than_it_takes(scores, share):
    threshold = seen(scores).threshold(EscalationRate(share), 0)
    assert escalated(scores, threshold) >= share
    # One line lower, and it would be too few.
    if math.isfinite(threshold):
        fewer = sum(score < threshold for score in scores)
        assert fewer < share * (len(scores) + 1)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**32),
    st.floats(0.02, 0.98),
    st.sampled_from(["normal", "exponential", "drifting"]),
)
def test_asked_share_of_a_stream_is_escalated(seed, share, kind):
    rng = random.Random(seed)
    recent, count, total = RecentScores(), 0, 6 * WINDOW
    for n in range(total):
        score = -rng.expovariate(1) if kind == "exponential" else rng.gauss(0, 1)
        if kind == "drifting":
            score += n / WINDOW / 10
        if n >= WINDOW:
            count += not score > recent.threshold(EscalationRate(share), 0)
        recent.add(score)
    assert abs(count / (total - WINDOW) - share) < 0.05


@given(st.lists(SCORES, max_size=200))
def test_share_of_0_keeps_all_and_of_1_nothing_however_little_was_seen(scores):
    recent = seen(scores)
    assert recent.threshold(EscalationRate(0), 0) == -math.inf
    assert recent.threshold(EscalationRate(1), 0) == math.inf


@pytest.mark.parametrize("rule", [EscalationRate(0.1), FollowLoad(0.05, 0.2)])
def test_everything_is_escalated_until_enough_was_seen(rule):
    recent = RecentScores()
    for score in range(ENOUGH):
        assert recent.threshold(rule, 0.5) == math.inf
        recent.add(score)
    assert math.isfinite(recent.threshold(rule, 0.5))


def test_scores_that_are_all_the_same_are_all_escalated():
    recent = seen([-0.5] * 500)
    assert recent.threshold(EscalationRate(0.01), 0) == -0.5


def test_window_slides():
    recent = seen([*range(WINDOW), *[9_999.0] * WINDOW])
    assert len(recent) == WINDOW
    assert recent.threshold(EscalationRate(0.01), 0) == 9_999


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.01, 0.99), st.integers(0, 3))
def test_what_has_slid_out_of_the_window_counts_for_nothing(seed, share, digits):
    rng = random.Random(seed)
    scores = [round(rng.gauss(0, 1), digits) for _ in range(WINDOW + rng.randrange(WINDOW))]
    rule = EscalationRate(share)
    assert seen(scores).threshold(rule, 0) == seen(scores[-WINDOW:]).threshold(rule, 0)


def test_score_that_is_no_number_is_refused_and_leaves_no_trace():
    recent = seen([1.0])
    with pytest.raises(ValueError, match="must be a number"):
        recent.add(math.nan)
    assert len(recent) == 1


@given(st.lists(SCORES, min_size=ENOUGH, max_size=200), SHARES, SHARES, st.floats(-1, 2))
def test_share_that_follows_the_load_is_held_like_any_other(scores, one, other, load):
    rule = FollowLoad(*sorted((one, other)))
    recent = seen(scores)
    fixed = EscalationRate(min(1.0, max(0.0, rule.share(load))))
    assert recent.threshold(rule, load) == recent.threshold(fixed, 0)


def test_idle_target_is_asked_more_and_busy_one_less():
    rule = FollowLoad(0.1, 0.5)
    assert rule.share(0) == 0.5
    assert rule.share(0.5) == pytest.approx(0.3)
    assert rule.share(1) == 0.1
    assert rule.share(-3) == 0.5
    assert rule.share(7) == 0.1
    assert rule.share(math.nan) == 0.5  # what is not known is no reason to keep more


@given(SHARES, SHARES, st.floats(0, 1))
def test_share_stays_within_its_bounds(one, other, load):
    lowest, highest = sorted((one, other))
    rule = FollowLoad(lowest, highest)
    assert lowest <= rule.share(load) <= highest
    assert (rule.share(1), rule.share(0)) == (lowest, highest)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Constant(math.nan), "threshold"),
        (lambda: EscalationRate(-0.1), "share"),
        (lambda: EscalationRate(1.1), "share"),
        (lambda: EscalationRate(math.nan), "share"),
        (lambda: FollowLoad(-0.1, 0.5), "lowest"),
        (lambda: FollowLoad(0.1, 1.5), "highest"),
        (lambda: FollowLoad(0.6, 0.5), "lowest"),
        (lambda: FilterOptions("perplexity"), "scorer"),
    ],
)
def test_rules_that_make_no_sense_are_refused(make, field):
    with pytest.raises(InvalidField) as refusal:
        make()
    assert refusal.value.field == field


@pytest.mark.parametrize("name", [*SCORERS, CALIBRATED, None])
def test_options_name_any_scorer_or_none(name):
    assert FilterOptions(name).scorer == name
