"""The model of a forward's time, fitted to times that are made by a known one."""

import random

import pytest

from specmesh.simulation.law import ForwardShape, Law
from specmesh.tools.profile.law import Sample, error, fit
from specmesh.tools.profile.measure.settings import verifications

KNOTS = (1, 2, 3, 4, 8, 16, 32, 64)
TRUE = Law(
    knots=(*KNOTS, 136),
    at_knots=(5.0, 7.5, 8.0, 5.5, 7.0, 10.0, 16.0, 30.0, 65.0),  # falls at 4
    call_ms=1.5,
    call_context_ms=2.0,
    token_context_ms=0.7,
    start_ms=0.0,
)
FORWARDS = [
    ForwardShape(calls, calls * width, context)
    for calls in (1, 2, 4, 8)
    for width in (1, 2, 3, 5, 9, 17)
    for context in (72, 264, 520)
]


def samples(law, noise=0.0):
    rng = random.Random(1)
    return [Sample((each,), law.ms(each) * (1 + rng.uniform(-noise, noise))) for each in FORWARDS]


def test_a_law_is_recovered_from_exact_times():
    found = fit(samples(TRUE))
    assert found.law.knots == TRUE.knots
    assert found.law.at_knots == pytest.approx(TRUE.at_knots, rel=1e-3)
    assert found.law.call_ms == pytest.approx(1.5, rel=1e-3)
    assert found.law.call_context_ms == pytest.approx(2.0, rel=1e-3)
    assert found.law.token_context_ms == pytest.approx(0.7, rel=1e-3)
    assert found.median_error < 0.01


def test_times_of_other_sizes_are_predicted_from_noisy_ones():
    law = fit(samples(TRUE, noise=0.1)).law
    for size in (
        ForwardShape(3, 12, 150),
        ForwardShape(6, 30, 400),
        ForwardShape(1, 7, 300),
    ):
        assert law.ms(size) == pytest.approx(TRUE.ms(size), rel=0.08)


def test_errors_are_those_on_settings_that_were_not_fitted_to():
    odd = Sample((ForwardShape(1, 16, 264),), 1e4)
    found = fit([*samples(TRUE), odd])
    assert len(found.errors) == len(found.samples)  # each was held out once
    assert max(found.errors) > 0.99  # a law fitted to it would be nearer


def test_forwards_that_were_timed_together_tell_what_each_takes():
    drafts = [
        Sample((one, other), TRUE.ms(one) + TRUE.ms(other))
        for one in FORWARDS
        for other in FORWARDS[::5]
    ]
    assert fit(drafts).law.ms(ForwardShape(2, 10, 264)) == pytest.approx(
        TRUE.ms(ForwardShape(2, 10, 264)), rel=0.01
    )


def test_what_a_draft_takes_besides_its_forwards_is_told_by_drafts_of_different_depth():
    level, wide = ForwardShape(1, 1, 72), ForwardShape(1, 8, 72)
    drafts = [
        Sample(forwards, 2.0 + TRUE.total_ms(forwards))
        for forwards in ((level,), (wide,), (level, level, level), (level, wide, wide), (wide,) * 4)
    ]
    law = fit(drafts).law
    assert law.start_ms == pytest.approx(2.0)
    assert law.total_ms((level, wide)) == pytest.approx(2.0 + TRUE.total_ms((level, wide)))


def test_beyond_what_was_measured_the_line_goes_on():
    law = fit([Sample((ForwardShape(1, n, 0),), 10.0 + n) for n in (1, 2, 4, 8, 16)]).law
    assert law.ms(ForwardShape(1, 32, 0)) == pytest.approx(42.0)


@pytest.mark.parametrize("seed", range(6))
def test_noise_in_the_largest_forwards_does_not_decide_what_larger_ones_take(seed):
    rng = random.Random(seed)
    true = Law((1.0, 136.0), (8.0, 48.5), call_ms=0.2, token_context_ms=0.02)
    settings = verifications(512)
    sizes = [ForwardShape(s.streams, s.streams * (s.width + 1), s.context) for s in settings]
    law = fit([Sample((each,), true.ms(each) * rng.gauss(1, 0.03)) for each in sizes]).law
    large = ForwardShape(64, 64 * 9, 256)
    assert law.ms(large) == pytest.approx(true.ms(large), rel=0.2)


def test_a_line_that_falls_does_not_go_on_to_fall():
    law = Law((1.0, 8.0), (10.0, 3.0))
    assert law.ms(ForwardShape(1, 500)) == 3.0
    assert law.ms(ForwardShape(1, 4.5)) == 6.5


def test_no_time_is_negative():
    falling = [Sample((ForwardShape(1, n, 72),), 10.0 - n / 2) for n in (1, 2, 4, 8, 16)]
    found = fit(falling).law
    assert min(found.at_knots) >= 0
    assert error(found, falling[0]) < 0.1


def test_one_size_alone_is_a_constant():
    assert fit([Sample((ForwardShape(1, 4, 0),), 9.0)]).law.ms(
        ForwardShape(1, 20, 0)
    ) == pytest.approx(9.0)
