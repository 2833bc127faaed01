"""Who may begin, by what the answers before have met; no clock, no sockets."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from opentelemetry.sdk.trace import TracerProvider

from specmesh.orchestrator.admission.controller import (
    FIRST_PER_REPLICA,
    MAX_FORWARDS,
    MAX_OVERHEAD_MS,
    MAX_WAITING,
    WINDOW,
    Admission,
    Room,
    Spent,
)
from specmesh.orchestrator.admission.entrance import Entrance
from specmesh.serving.errors import ResourceExhaustedStatus

FORWARD_MS = 20.0


def spent(num_forwards: float, overhead_ms: float = 1.0) -> Spent:
    """A verification that waited for so many forwards."""
    queue_ms = num_forwards * FORWARD_MS
    return Spent(queue_ms, FORWARD_MS, overhead_ms)


def told(room: Room, num_running: int, num_forwards: float, *, times: int = WINDOW) -> int:
    """The room after verifications that waited for so many forwards."""
    for _ in range(times):
        room.answered(num_running, 1, spent(num_forwards))
    return room.size(1)


def test_a_mesh_of_which_nothing_is_known_takes_some_a_replica():
    assert Room().size(3) == 3 * FIRST_PER_REPLICA


def test_answers_that_wait_for_each_other_leave_room_for_fewer():
    # One at a time: each of 16 waits for 15.
    assert told(Room(), 16, 15) == round(16 * (MAX_FORWARDS + 1) / 16)


def test_a_replica_that_batches_is_given_more_while_nobody_waits_long():
    room, size = Room(), FIRST_PER_REPLICA
    for _ in range(8):
        size = told(room, size, 0.5)
    assert size > 4 * FIRST_PER_REPLICA


def test_room_that_nobody_uses_does_not_grow():
    room = Room()
    assert told(room, 3, 0.0, times=10 * WINDOW) == FIRST_PER_REPLICA


def test_room_neither_grows_nor_shrinks_where_waits_are_as_they_may_be():
    assert told(Room(), FIRST_PER_REPLICA, 0.75 * MAX_FORWARDS) == FIRST_PER_REPLICA


def test_an_orchestrator_that_is_late_itself_takes_fewer():
    room = Room()
    for _ in range(WINDOW):
        room.answered(16, 1, spent(0, overhead_ms=2 * MAX_OVERHEAD_MS))
    assert room.size(1) == 8


def test_one_call_that_hung_does_not_empty_the_mesh():
    room = Room()
    for _ in range(WINDOW - 1):
        room.answered(16, 1, spent(0))
    room.answered(16, 1, Spent.of(60_000.0, 0.0, FORWARD_MS))
    assert room.size(1) >= 16


def test_a_few_that_wait_long_count_as_much_as_many_that_do_not():
    room = Room()
    for number in range(WINDOW):
        room.answered(80, 1, spent(0, overhead_ms=2_000 if number % 4 == 0 else 10))
    assert room.size(1) < 40


def test_a_wait_that_nobody_minds_leaves_room_for_many_short_forwards():
    room = Room()
    for _ in range(WINDOW):
        room.answered(FIRST_PER_REPLICA, 1, Spent(16.0, 1.0, 7.0))
    assert room.size(1) > FIRST_PER_REPLICA


def test_full_queues_leave_room_for_fewer_however_fast_those_are_who_get_in():
    room = Room()
    room.refused(12)
    assert told(room, 12, 0) == 9
    assert told(room, 9, 0) == 12  # nobody was refused any more


def test_a_replica_always_takes_one():
    assert told(Room(), 2, 1000) == 1


def test_room_follows_a_load_that_goes():
    room = Room()
    assert told(room, 40, 100) == 1
    size = 1
    for _ in range(20):
        size = told(room, size, 0)
    assert size > 10


@pytest.mark.parametrize("capacity", [1, 6, 40])
def test_room_settles_at_what_keeps_waits_short(capacity: int):
    """A replica that batches ``capacity`` at a time: waits are those of a queue behind it."""
    room = Room()
    for _ in range(400):
        size = room.size(1)
        num_forwards = max(0.0, size / capacity - 1)
        room.answered(size, 1, spent(num_forwards))
    assert capacity < room.size(1) <= (MAX_FORWARDS + 1) * capacity + 1


def finished(admission: Admission, seconds: float, num_beside: int) -> None:
    """One of ``num_beside`` that came and went together."""
    admission.num_running = num_beside
    admission.ended(seconds, num_beside, 1)
    admission.num_running = 0


def test_a_wait_is_expected_by_how_fast_others_have_left():
    admission = Admission()
    assert admission.expected_wait_s(100) == 0.0  # nobody has left yet
    for _ in range(8):
        finished(admission, 8.0, 16)
    assert admission.expected_wait_s(0) == pytest.approx(0.5)
    assert admission.expected_wait_s(9) == pytest.approx(5.0)


def test_who_would_wait_too_long_may_not_wait():
    admission = Admission(max_wait_s=3.0)
    for _ in range(8):
        finished(admission, 8.0, 16)
    assert admission.may_wait(4, 4, time_left_s=600)
    assert not admission.may_wait(6, 6, time_left_s=600)
    assert not admission.may_wait(4, 4, time_left_s=2.0)
    assert not admission.may_wait(0, MAX_WAITING, time_left_s=600)


def test_a_refusal_says_when_to_come_again_each_at_another_time():
    admission = Admission(max_wait_s=3.0)
    error = admission.overload(1, 7, 5.0, die=0.5).error()
    assert error.reason == "OVERLOADED"
    assert error.metadata == {
        "num_running": "0",
        "max_running": str(FIRST_PER_REPLICA),
        "num_waiting": "7",
        "expected_wait_ms": "5000",
    }
    assert error.retry_after_s == pytest.approx(2.0)
    times = {admission.overload(1, 7, 5.0, die).retry_after_s for die in (0.0, 0.3, 0.9)}
    assert len(times) == 3
    assert all(1.0 <= each < 3.0 for each in times)


class Door:
    """An entrance to a mesh with room for ``size``."""

    def __init__(self, size: int, max_wait_s: float = 30.0) -> None:
        self.admission = Admission(max_wait_s)
        for _ in range(WINDOW):  # a replica's forwards take for ever
            self.admission.room.answered(1, 1, spent(1000))
        self.replicas = size
        self.entrance = Entrance(self.admission, lambda: self.replicas, lambda: 0.5)
        self.order: list[str] = []
        self._leave: dict[str, asyncio.Event] = {}

    def come(self, name: str, *, resumed: bool = False, time_left_s: float = 60.0) -> asyncio.Task:
        self._leave[name] = asyncio.Event()
        return asyncio.create_task(self._visit(name, resumed, time_left_s))

    async def go(self, name: str) -> None:
        self._leave[name].set()
        await settle()

    async def _visit(self, name: str, resumed: bool, time_left_s: float) -> None:
        deadline = asyncio.get_running_loop().time() + time_left_s
        async with self.entrance.slot(deadline, resumed=resumed):
            self.order.append(name)
            await self._leave[name].wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_first_come_first_served():
    door = Door(1)
    tasks = [door.come(name) for name in "abc"]
    await settle()
    assert door.order == ["a"]
    await door.go("a")
    assert door.order == ["a", "b"]
    await door.go("b")
    await door.go("c")
    await asyncio.gather(*tasks)
    assert door.order == ["a", "b", "c"]
    assert door.admission.num_running == 0


async def test_a_request_that_had_to_wait_says_so_in_its_trace():
    door, tracer = Door(1), TracerProvider().get_tracer("test")
    spans, tasks = {}, []
    for name in "ab":
        with tracer.start_as_current_span(name, end_on_exit=False) as spans[name]:
            tasks.append(door.come(name))
    await settle()
    await door.go("a")
    await door.go("b")
    await asyncio.gather(*tasks)
    assert "specmesh.queue_ms" not in spans["a"].attributes
    assert spans["b"].attributes["specmesh.queue_ms"] > 0


async def test_resumed_answers_go_before_new_ones_and_over_the_room():
    door = Door(1)
    tasks = [door.come("a"), door.come("new"), door.come("r1", resumed=True)]
    await settle()
    assert door.order == ["a", "r1"]
    tasks.append(door.come("r2", resumed=True))
    await door.go("a")
    assert door.order == ["a", "r1", "r2"]
    for name in ("r1", "r2", "new"):
        await door.go(name)
    await asyncio.gather(*tasks)
    assert door.order[-1] == "new"


async def test_room_that_grows_lets_in_those_who_wait():
    door = Door(1)
    tasks = [door.come(name) for name in "ab"]
    await settle()
    door.replicas = 2
    door.admission.verified(2, Spent(0.0, 1.0, 0.0))
    await settle()
    assert door.order == ["a", "b"]
    for name in "ab":
        await door.go(name)
    await asyncio.gather(*tasks)


async def test_nobody_waits_beyond_deadline_or_patience():
    door = Door(1, max_wait_s=0.1)
    first = door.come("a")
    await settle()
    for task in (door.come("b"), door.come("c", time_left_s=0.02)):
        with pytest.raises(ResourceExhaustedStatus) as refused:
            await task
        assert refused.value.reason == "OVERLOADED"
        assert refused.value.retry_after_s
    await door.go("a")
    await first
    late = door.come("d")
    await settle()
    assert door.order == ["a", "d"]
    await door.go("d")
    await late


async def test_who_leaves_while_waiting_holds_nobody_up():
    door = Door(1)
    tasks = [door.come(name) for name in "abc"]
    await settle()
    tasks[1].cancel()
    await settle()
    await door.go("a")
    assert door.order == ["a", "c"]
    tasks[2].cancel()
    await settle()
    assert door.admission.num_running == 0


async def test_a_turn_that_comes_as_its_owner_leaves_goes_to_the_next():
    door = Door(1)
    tasks = [door.come(name) for name in "abc"]
    await settle()
    door._leave["a"].set()
    await asyncio.sleep(0)
    tasks[1].cancel()
    await settle()
    assert door.order == ["a", "c"]
    await door.go("c")
    assert door.admission.num_running == 0


async def test_a_place_given_back_early_is_given_back_once():
    door = Door(1)
    async with AsyncExitStack() as stack:
        deadline = asyncio.get_running_loop().time() + 60
        slot = await stack.enter_async_context(door.entrance.slot(deadline, resumed=False))
        slot.leave()
        assert door.admission.num_running == 0
        waiting = door.come("next")
        await settle()
        assert door.order == ["next"]
    assert door.admission.num_running == 1
    await door.go("next")
    await waiting
