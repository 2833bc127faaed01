"""The law of forward times that is learnt from the forwards seen."""

from __future__ import annotations

import random

import pytest

from specmesh.decoding.predict.forward_times import KEPT_FOR, WINDOW, ForwardTimes


def learnt(law, rows, noise=lambda: 0.0) -> ForwardTimes:
    times = ForwardTimes()
    for each in rows:
        times.add(each, law(each) + noise())
    return times


def test_a_line_is_found():
    times = learnt(lambda rows: 0.03 + 0.002 * rows, [1 + n % 9 for n in range(WINDOW)])
    assert times.row_s == pytest.approx(0.002)
    assert times.fixed_s == pytest.approx(0.03)


def test_pauses_of_a_busy_machine_do_not_move_it():
    rng = random.Random(1)
    times = learnt(
        lambda rows: 0.03 + 0.002 * rows,
        [rng.randint(30, 40) for _ in range(WINDOW)],
        lambda: 0.2 if rng.random() < 0.1 else rng.uniform(0, 0.002),
    )
    assert times.row_s == pytest.approx(0.002, rel=0.15)


def test_a_pause_in_one_of_two_forwards_of_a_size_does_not_count():
    times = ForwardTimes()
    for num_rows, seconds in [(2, 0.05), (2, 0.01)] + [(16, 0.02)] * WINDOW:
        times.add(num_rows, seconds)
    assert times.near(2, 0.0) == pytest.approx(0.01)


def test_forwards_that_get_faster_with_rows_cost_nothing_by_the_row():
    assert learnt(lambda rows: 0.03 - 0.001 * rows, [1, 5] * 32).row_s == 0


@pytest.mark.parametrize("num_rows", [1, 8])
def test_equal_forwards_leave_what_is_known(num_rows):
    """Answers that try a draft now and then tell whether it is still so."""
    times = learnt(lambda rows: 0.03 + 0.002 * rows, [4, 8] * 8)
    for _ in range(2 * WINDOW):
        times.add(num_rows, 0.03 + 0.002 * num_rows)
    assert times.knows_rows
    assert times.row_s == pytest.approx(0.002)
    assert times.fixed_s == pytest.approx(0.03)


def test_what_large_forwards_take_is_not_forgotten_while_forwards_are_small():
    """A GPU is flat up to 300 rows or so: small forwards say nothing about larger ones."""
    times = learnt(lambda rows: max(5.0, rows / 60), [256, 290, 3000] * 4)
    for number in range(2 * WINDOW):
        times.add(256 + number % 8, 5.0)
    assert times.row_s == pytest.approx(1 / 60, rel=0.05)
    for number in range(KEPT_FOR):
        times.add(256 + number % 8, 5.0)
    assert times.row_s == 0


def gpu_s(rows: float) -> float:
    """The time of a forward that is flat up to 300 rows."""
    return 5.0 * max(1.0, rows / 300)


def test_forwards_of_about_the_same_size_tell_what_a_line_does_not():
    sizes = [150, 200, 250, 400, 600, 800] * 16
    times = learnt(gpu_s, sizes)
    assert times.near(200, times.row_s) == pytest.approx(5.0, rel=0.1)
    assert times.near(600, times.row_s) == pytest.approx(gpu_s(600), rel=0.1)
    small_cpu = {1: 10.5, 3: 16.6, 5: 18.0}
    times = learnt(small_cpu.__getitem__, [3, 5, 5, 3, 5, 1] * 16)
    assert times.near(1, times.row_s) == pytest.approx(10.5)


def test_where_no_forward_was_about_as_large_the_nearest_one_and_the_slope_tell():
    times = learnt(lambda rows: 0.03 + 0.002 * rows, [40, 50] * 32)
    assert times.near(10, times.row_s) == pytest.approx(0.05)
    assert ForwardTimes().near(10, 0.001) == 0


def test_forwards_that_are_much_smaller_than_usual_do_not_tell_what_a_row_takes():
    times = learnt(gpu_s, [1, 4, 300, 600])
    assert times.row_s == pytest.approx(5 / 300)


def test_a_crowd_whose_forwards_are_nearly_equal_does_not_take_noise_for_the_price_of_a_row():
    rng = random.Random(1)
    rows = [1, *[64 + 3 * (n % 4 == 0) for n in range(2 * WINDOW)]]
    times = learnt(lambda rows: 0.01 + 0.005 * rows, rows, lambda: rng.uniform(-0.016, 0.016))
    assert times.row_s == pytest.approx(0.005, rel=0.1)
    assert not times.varies


def test_a_forward_saves_what_two_of_half_its_size_would_take_longer():
    assert learnt(lambda rows: 0.03 + 0.002 * rows, [8, 16] * 32).shared_s == pytest.approx(0.03)
    assert learnt(gpu_s, [250, 240, 120, 130] * 16).shared_s == pytest.approx(5.0, rel=0.1)
    assert ForwardTimes().shared_s == 0
