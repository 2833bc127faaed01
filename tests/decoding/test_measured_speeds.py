"""The comparison of strategies with the target alone."""

from __future__ import annotations

import pytest

from specmesh.decoding.predict.measured_speeds import (
    APART,
    HALF_LIFE_S,
    LONGEST,
    MOST,
    SHORTEST,
    MeasuredSpeeds,
)

EXPECTED = 1.25
STRATEGY = "heads-and-drafter"
ALONE_S = 0.01
"""The time of a token of the target alone."""


class Crowd:
    """Answers that use one strategy, which yields ``gain`` times what the target alone does."""

    def __init__(self, gain: float, num_answers: int = 1, *, shares_host: bool = True) -> None:
        self.speeds, self.shares_host = MeasuredSpeeds(), shares_host
        self.gain, self.num_answers, self.load = gain, num_answers, num_answers
        self.now, self.strategy = 0.0, STRATEGY

    def commit(self) -> None:
        """Commit a token, by the target alone if it is timed."""
        timing = self.speeds.times_alone
        seconds = ALONE_S if timing else ALONE_S / self.gain
        self.now += seconds / self.num_answers
        strategy, expected = ("autoregressive", None) if timing else (self.strategy, EXPECTED)
        self.speeds.add(
            *(strategy, 1, seconds),
            expected=expected,
            load=self.load,
            shares_host=self.shares_host,
            now=self.now,
        )

    def until(self, *, timing: bool) -> int:
        """Commit until the target is timed or no longer; return the number of tokens."""
        num_tokens = 0
        while self.speeds.times_alone is not timing:
            self.commit()
            num_tokens += 1
        return num_tokens


def test_nothing_is_corrected_before_it_is_measured():
    assert MeasuredSpeeds().correction(STRATEGY) == 1


@pytest.mark.parametrize("gain", [0.6, 0.9, 1.25])
def test_a_strategy_is_corrected_by_what_it_yields_beside_the_target_alone(gain):
    crowd = Crowd(gain)
    for _ in range(4):
        crowd.until(timing=True)
        crowd.until(timing=False)
    assert crowd.speeds.correction(STRATEGY) == pytest.approx(gain / EXPECTED, rel=0.05)


def test_a_few_tokens_of_one_text_correct_less_than_those_of_a_crowd():
    one, many = Crowd(gain=0.6), Crowd(gain=0.6, num_answers=64)
    num_tokens = one.until(timing=True)
    many.until(timing=True)
    for crowd in (one, many):
        crowd.until(timing=False)
    found, true = one.speeds.correction(STRATEGY), 0.6 / EXPECTED
    assert found == pytest.approx(true ** (num_tokens / (num_tokens + 128)), rel=1e-3)
    assert many.speeds.correction(STRATEGY) == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize(("num_answers", "num_tokens"), [(1, 8), (2, 16), (15, 16)])
def test_the_target_alone_is_timed_for_a_few_tokens(num_answers, num_tokens):
    crowd = Crowd(EXPECTED, num_answers)
    crowd.until(timing=True)
    assert crowd.until(timing=False) == num_tokens


def test_a_strategy_as_slow_as_its_kin_stays_that_slow():
    crowd = Crowd(gain=0.7 * EXPECTED, num_answers=64)
    crowd.until(timing=True)
    crowd.until(timing=False)
    known = crowd.speeds.correction("dsi")
    crowd.strategy, crowd.num_answers, crowd.load = "exhaustive", 1, 64
    crowd.until(timing=True)
    crowd.until(timing=False)
    assert crowd.speeds.correction("exhaustive") == pytest.approx(known, rel=0.02)


@pytest.mark.parametrize(("num_answers", "is_surprise"), [(1, False), (64, True)])
def test_one_harder_text_is_no_surprise(num_answers, is_surprise):
    crowd = Crowd(EXPECTED, num_answers)
    for _ in range(2):
        crowd.until(timing=True)
        crowd.until(timing=False)
    crowd.gain = 0.88 * EXPECTED
    num_before = crowd.until(timing=True)
    crowd.until(timing=False)
    assert (crowd.until(timing=True) < 0.75 * num_before) is is_surprise


def test_a_correction_is_bounded():
    crowd = Crowd(gain=100.0)
    for _ in range(3):
        crowd.until(timing=True)
        crowd.until(timing=False)
    assert crowd.speeds.correction(STRATEGY) == pytest.approx(MOST, rel=0.01)


def test_timings_become_rare_once_a_strategy_does_as_expected():
    crowd = Crowd(EXPECTED)
    num_between = []
    for _ in range(8):
        num_between.append(crowd.until(timing=True))
        num_timed = crowd.until(timing=False)
    assert num_between == sorted(num_between)
    assert num_between[-1] == pytest.approx(num_between[0] * LONGEST / SHORTEST, rel=0.05)
    assert num_timed < 0.02 * num_between[-1]


def test_drafters_on_hosts_of_their_own_are_compared_less_often():
    near, apart = Crowd(EXPECTED), Crowd(EXPECTED, shares_host=False)
    assert apart.until(timing=True) == pytest.approx(APART * near.until(timing=True), rel=0.01)


def test_what_is_better_than_expected_says_nothing_of_its_kin():
    for gain, of_kin in ((2.0 * EXPECTED, 1.0), (0.5 * EXPECTED, 0.5)):
        crowd = Crowd(gain, num_answers=64)
        crowd.until(timing=True)
        crowd.until(timing=False)
        assert crowd.speeds.correction("dsi") == pytest.approx(of_kin, rel=0.1)


def test_the_more_a_strategy_gains_the_rarer_is_a_timing():
    """It would cost the more."""
    speeds = MeasuredSpeeds()
    for _ in range(2_000):
        speeds.add("dsi", 1, ALONE_S / 8, expected=8.0, load=1.0, shares_host=True, now=0.0)
    assert not speeds.times_alone


def test_each_answer_of_a_crowd_is_timed_and_has_gone_on_for_long_before():
    crowd = Crowd(EXPECTED, num_answers=64)
    assert crowd.until(timing=True) > 64 * 3 * SHORTEST
    assert crowd.until(timing=False) > 32


def test_speeds_under_other_loads_are_not_compared():
    crowd = Crowd(gain=0.5, num_answers=16)
    crowd.until(timing=True)
    crowd.load = 2
    crowd.until(timing=False)
    assert crowd.speeds.correction(STRATEGY) == 1
    assert not crowd.speeds.has_measured(STRATEGY)


def test_a_correction_is_forgotten_so_that_the_strategy_is_tried_again():
    crowd = Crowd(gain=0.5)
    crowd.until(timing=True)
    crowd.until(timing=False)
    assert crowd.speeds.has_measured(STRATEGY)
    found = crowd.speeds.correction(STRATEGY)
    late = crowd.now + HALF_LIFE_S
    crowd.speeds.add(
        "autoregressive", 1, ALONE_S, expected=None, load=1.0, shares_host=True, now=late
    )
    assert crowd.speeds.correction(STRATEGY) == pytest.approx(found**0.5)


def test_a_timing_does_not_wait_for_answers_that_have_ended():
    crowd = Crowd(EXPECTED, num_answers=256)
    crowd.until(timing=True)
    crowd.num_answers = 1
    assert crowd.until(timing=False) < 32


def test_what_was_never_used_is_corrected_as_the_best_of_its_kin():
    crowd = Crowd(gain=0.5)
    crowd.until(timing=True)
    crowd.until(timing=False)
    assert crowd.speeds.correction("dsi") == crowd.speeds.correction(STRATEGY) < 1
    assert crowd.speeds.correction("tree") == 1
