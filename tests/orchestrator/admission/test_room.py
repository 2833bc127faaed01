"""The number of answers that run together, by their verifications; no clock, no sockets."""

from __future__ import annotations

from math import ceil
from statistics import fmean

import pytest

from specmesh.orchestrator.admission.room import (
    FIRST_PER_REPLICA,
    FORGOTTEN_SECONDS,
    GROWTH_PER_REPLICA,
    MAX_FORWARDS,
    MAX_OVERHEAD_MS,
    MAX_SHRINKAGE,
    SHRINKAGE,
    WINDOW,
    Room,
    Spent,
)

FORWARD_MS = 40.0
WORTHWHILE = 16
"""Calls that should share a forward, by the replica."""
NOW = 100.0


def spent(num_forwards: float, overhead_ms: float = 1.0) -> Spent:
    """A verification that waited for so many forwards."""
    return Spent(num_forwards * FORWARD_MS, FORWARD_MS, overhead_ms)


def slower_with(num_calls: int) -> Spent:
    """A verification that shared a forward, each of whose calls makes it slower."""
    return Spent(2.5 * num_calls, 5.0 * num_calls, 1.0, num_calls, WORTHWHILE)


def window(num_running: int) -> int:
    """The verifications between two decisions."""
    return max(WINDOW, 2 * num_running)


def told(room: Room, num_running: int, num_forwards: float, *, windows: int = 1) -> int:
    """The room after verifications that waited for so many forwards."""
    for _ in range(windows * window(num_running)):
        room.answered(num_running, 1, spent(num_forwards), NOW)
    return room.size(1, NOW)


def test_a_mesh_of_which_nothing_is_known_takes_some_a_replica():
    assert Room().size(3, NOW) == 3 * FIRST_PER_REPLICA


def test_answers_that_wait_for_each_other_leave_room_for_fewer():
    # One at a time: each of 16 waits for 4, which is so many forwards too many.
    assert told(Room(), 16, 4) == int(16 * (MAX_FORWARDS + 1) / 5)


def test_a_response_counts_as_often_as_it_stands_for_a_verification():
    """One call that queued, and a response for its other tokens, which waited for nobody."""
    each, together = Room(), Room()
    for _ in range(window(16)):
        each.answered(16, 1, spent(10), NOW)
        together.answered(16, 1, spent(10), NOW)
        for _ in range(15):
            each.answered(16, 1, spent(0), NOW)
        together.answered(16, 1, spent(0), NOW, times=15)
    assert together.size(1, NOW) == each.size(1, NOW) > 16


def test_one_decision_leaves_at_least_half():
    room = Room()
    assert told(room, 16, 1000) == 16 * MAX_SHRINKAGE
    assert told(room, 8, 1000) == 8 * MAX_SHRINKAGE


def test_a_replica_that_batches_is_given_more_while_nobody_waits_long():
    room, size = Room(), FIRST_PER_REPLICA
    for _ in range(16):
        size = told(room, size, 0.5)
    assert size > 4 * FIRST_PER_REPLICA


def test_room_that_nobody_uses_does_not_grow():
    assert told(Room(), 3, 0.0, windows=10) == FIRST_PER_REPLICA


def test_room_neither_grows_nor_shrinks_where_waits_are_as_they_may_be():
    assert told(Room(), FIRST_PER_REPLICA, 0.8 * MAX_FORWARDS) == FIRST_PER_REPLICA


def test_an_orchestrator_that_is_late_itself_takes_fewer():
    room = Room()
    for _ in range(window(16)):
        room.answered(16, 1, spent(0, overhead_ms=1.25 * MAX_OVERHEAD_MS), NOW)
    assert room.size(1, NOW) == int(16 / 1.25)


def test_one_call_that_hung_does_not_empty_the_mesh():
    room = Room()
    for _ in range(window(16) - 1):
        room.answered(16, 1, spent(0), NOW)
    room.answered(16, 1, Spent.of(60_000.0, 0.0, FORWARD_MS), NOW)
    assert room.size(1, NOW) >= 16


def test_a_few_that_wait_long_count_as_much_as_many_that_do_not():
    room = Room()
    for number in range(window(80)):
        room.answered(80, 1, spent(0, overhead_ms=2_000 if number % 4 == 0 else 10), NOW)
    assert room.size(1, NOW) == 40


def test_a_wait_that_nobody_minds_leaves_room_for_many_short_forwards():
    room = Room()
    for _ in range(window(16)):
        room.answered(FIRST_PER_REPLICA, 1, Spent(16.0, 1.0, 7.0), NOW)
    assert room.size(1, NOW) > FIRST_PER_REPLICA


def test_full_queues_leave_room_for_fewer_however_fast_those_are_who_get_in():
    room = Room()
    room.refused(12, NOW)
    assert room.size(1, NOW) == 9  # immediately
    assert told(room, 12, 0) == 9
    assert told(room, 9, 0) == 9 + GROWTH_PER_REPLICA  # nobody was refused any more


def test_rooms_become_equal_that_were_not():
    """Of orchestrators that share a replica, which grow and shrink together."""
    rooms, sizes = [Room(), Room()], [60, 12]
    for _ in range(60):
        calls = sum(sizes)
        queued = 0.5 if calls < 48 else 4
        sizes = [told(room, size, queued) for room, size in zip(rooms, sizes, strict=True)]
    assert max(sizes) < 1.5 * min(sizes)


@pytest.mark.parametrize("sizes", [(40, 4), (16, 1), (4, 4, 100)])
def test_rooms_become_equal_where_forwards_have_enough_calls(sizes: tuple[int, ...]):
    """Each running answer is verified once a round, so that the small room decides seldom."""
    rooms = [Room() for _ in sizes]
    for room, size in zip(rooms, sizes, strict=True):
        room.refused(ceil(size / SHRINKAGE), NOW)
    seen = []
    for _ in range(600):
        now_running = [room.size(1, NOW) for room in rooms]
        seen.append(now_running)
        for room, size in zip(rooms, now_running, strict=True):
            for _ in range(size):
                room.answered(size, 1, slower_with(sum(now_running)), NOW)
    means = [fmean(each) for each in zip(*seen[300:], strict=True)]
    assert WORTHWHILE / 2 <= sum(means) <= 1.2 * WORTHWHILE
    assert max(means) <= 1.5 * min(means)


def test_a_replica_with_too_many_calls_counts_beside_one_that_bears_more():
    room = Room()
    for _ in range(window(16)):
        room.answered(16, 2, Spent(1.0, 80.0, 1.0, 40, 100), NOW)
        room.answered(16, 2, Spent(1.0, 80.0, 1.0, 40, WORTHWHILE), NOW)
    assert room.size(2, NOW) < 16


def test_a_replica_always_takes_one():
    room = Room()
    for num_running in (4, 2, 1, 1):
        size = told(room, num_running, 1000)
    assert size == 1


def test_room_follows_a_load_that_goes():
    room = Room()
    size = told(room, 2, 100)
    assert size == 1
    for _ in range(20):
        size = told(room, size, 0)
    assert size > 10


@pytest.mark.parametrize("num_running", [2, 60])
def test_what_was_learnt_is_forgotten_once_it_is_of_no_use(num_running: int):
    room = Room()
    for _ in range(4):
        size = told(room, max(num_running, room.size(1, NOW)), 0.0 if num_running > 30 else 9.0)
    assert size != FIRST_PER_REPLICA
    later = NOW + 0.9 * FORGOTTEN_SECONDS
    assert room.size(1, later) == size
    room.answered(size, 1, spent(1.5), later)  # it is used up still
    assert room.size(1, later + 0.9 * FORGOTTEN_SECONDS) == size
    room.answered(0, 1, spent(0), later + 0.9 * FORGOTTEN_SECONDS)
    assert room.size(1, later + 1.1 * FORGOTTEN_SECONDS) == FIRST_PER_REPLICA


@pytest.mark.parametrize("capacity", [1, 6, 40])
def test_room_settles_at_what_keeps_waits_short(capacity: int):
    """A replica that batches ``capacity`` at a time: waits are those of a queue behind it."""
    room = Room()
    for _ in range(50):
        size = room.size(1, NOW)
        told(room, size, max(0.0, size / capacity - 1))
    assert capacity < room.size(1, NOW) <= (MAX_FORWARDS + 1) * capacity + 1


def test_room_does_not_grow_where_company_only_makes_each_slower():
    room = Room()
    for _ in range(10):
        size = room.size(1, NOW)
        for number in range(window(size)):
            calls = max(1, size - number % 4)
            room.answered(size, 1, slower_with(calls), NOW)
    assert room.size(1, NOW) <= 2 * WORTHWHILE


@pytest.mark.parametrize("num_orchestrators", [1, 2, 8])
def test_orchestrators_that_share_a_replica_agree_by_what_it_says(num_orchestrators: int):
    """Each sees how many calls share a forward, whoever sent them."""
    rooms = [Room() for _ in range(num_orchestrators)]
    for number in range(40):
        sizes = [room.size(1, NOW) for room in rooms]
        for room, size in zip(rooms, sizes, strict=True):
            for verification in range(window(size)):
                calls = max(1, sum(sizes) - (number + verification) % 4)
                room.answered(size, 1, slower_with(calls), NOW)
    total = sum(room.size(1, NOW) for room in rooms)
    assert num_orchestrators <= total <= 2 * WORTHWHILE
