"""The queue before the mesh: who begins, who waits and who is refused."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from opentelemetry.sdk.trace import TracerProvider

from specmesh.orchestrator.admission.controller import Admission
from specmesh.orchestrator.admission.entrance import Entrance
from specmesh.orchestrator.admission.room import WINDOW, Spent
from specmesh.serving.caller import identified
from specmesh.serving.errors import ResourceExhaustedStatus


class Door:
    """An entrance to a mesh with room for ``size``."""

    def __init__(self, size: int, max_wait_s: float = 30.0) -> None:
        self.admission = Admission(max_wait_s)
        for _ in range(WINDOW):  # a replica's forwards take for ever
            self.admission.room.answered(1, 1, Spent(1e6, 1e3, 1.0), now())
        self.replicas = size
        self.entrance = Entrance(self.admission, lambda: self.replicas, lambda: 0.5)
        self.order: list[str] = []
        self._leave: dict[str, asyncio.Event] = {}

    def come(
        self, name: str, *, resumed: bool = False, time_left_s: float = 60.0, identity: str = ""
    ) -> asyncio.Task:
        self._leave[name] = asyncio.Event()
        with identified(identity):
            return asyncio.create_task(self._visit(name, resumed, time_left_s))

    async def go(self, name: str) -> None:
        self._leave[name].set()
        await settle()

    async def _visit(self, name: str, resumed: bool, time_left_s: float) -> None:
        deadline = asyncio.get_running_loop().time() + time_left_s
        async with self.entrance.slot(deadline, resumed=resumed) as slot:
            slot.limit(10)
            slot.progressed(10)
            self.order.append(name)
            await self._leave[name].wait()


def now() -> float:
    return asyncio.get_running_loop().time()


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


async def test_a_resumed_answer_waits_for_the_room_to_grow_where_no_end_is_in_sight():
    door = Door(1)
    tasks = [door.come("a"), door.come("r1", resumed=True)]
    await settle()
    door.admission.expected_wait_s = lambda *_: 3600.0
    with pytest.raises(ResourceExhaustedStatus):
        await door.come("new")
    tasks.append(door.come("r2", resumed=True))
    await settle()
    assert door.order == ["a", "r1"]
    door.replicas = 2
    door.admission.verified(2, Spent(0.0, 1.0, 0.0), now())
    await settle()
    assert door.order == ["a", "r1", "r2"]
    for name in ("a", "r1", "r2"):
        await door.go(name)
    await asyncio.gather(*tasks)


async def test_room_that_grows_lets_in_those_who_wait():
    door = Door(1)
    tasks = [door.come(name) for name in "ab"]
    await settle()
    door.replicas = 2
    door.admission.verified(2, Spent(0.0, 1.0, 0.0), now())
    await settle()
    assert door.order == ["a", "b"]
    for name in "ab":
        await door.go(name)
    await asyncio.gather(*tasks)


async def test_nobody_waits_beyond_the_deadline():
    door = Door(1)
    first = door.come("a")
    await settle()
    with pytest.raises(ResourceExhaustedStatus) as refused:
        await door.come("b", time_left_s=0.02)
    assert refused.value.reason == "OVERLOADED"
    assert refused.value.retry_after_s
    await door.go("a")
    await first
    late = door.come("c")
    await settle()
    assert door.order == ["a", "c"]
    await door.go("c")
    await late


async def test_who_was_let_in_to_wait_begins_at_the_end_of_patience_as_resumed_answers_do():
    door = Door(1, max_wait_s=0.05)
    tasks = [door.come(name) for name in "abc"]
    with pytest.raises(ResourceExhaustedStatus):
        await tasks[2]  # there are twice as many as there is room for by now
    assert door.order == ["a", "b"]
    for name in "ab":
        await door.go(name)
    await asyncio.gather(*tasks[:2])
    assert door.admission.num_running == 0


async def test_without_patience_nobody_begins_over_the_room():
    door = Door(1, max_wait_s=0.0)
    door.admission.expected_wait_s = lambda *_: None
    first = door.come("a")
    with pytest.raises(ResourceExhaustedStatus):
        await asyncio.wait_for(door.come("b"), 10)
    assert door.order == ["a"]
    await door.go("a")
    await first


async def test_without_patience_nobody_takes_a_place_to_wait():
    door = Door(1, max_wait_s=0.0)
    door.admission.expected_wait_s = lambda *_: None
    first = door.come("a")
    await settle()
    with pytest.raises(ResourceExhaustedStatus):
        door.entrance.check(now() + 60, resumed=False)
    await door.go("a")
    await first


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


async def test_who_cannot_begin_in_time_is_told_at_once_and_without_a_place():
    door = Door(1, max_wait_s=1.0)
    first = door.come("a")
    await settle()
    deadline = now() + 60
    door.entrance.check(deadline, resumed=False)  # "a" is done in no time
    async with door.entrance.slot(deadline, resumed=True) as slot:
        slot.limit(1000)
        slot.progressed(1)
        door.admission.pace.answer_s(now() + 60)  # and then nothing comes any more
        with pytest.raises(ResourceExhaustedStatus):
            door.entrance.check(deadline, resumed=False)
        refused = door.come("b")
        await settle()
        assert refused.done()
        with pytest.raises(ResourceExhaustedStatus):
            await refused
    await door.go("a")
    await first


async def test_who_waits_is_refused_as_soon_as_it_is_known_to_be_in_vain():
    door = Door(1, max_wait_s=1.0)
    async with door.entrance.slot(now() + 60, resumed=False) as slot:
        waiting = door.come("b")  # it is not known yet how fast answers proceed
        await settle()
        assert door.entrance.num_waiting == 1
        slot.limit(1000)
        door.admission.pace.answer_s(now() + 60)
        door.admission.verified(1, Spent(0.0, 1.0, 0.0), now() + 60)
        await settle()
        with pytest.raises(ResourceExhaustedStatus) as refused:
            await waiting
        assert refused.value.reason == "OVERLOADED"
    assert door.admission.num_running == 0


async def test_who_is_refused_because_waiting_is_in_vain_is_told_the_expected_wait():
    door = Door(1, max_wait_s=4.0)
    door.admission.expected_wait_s = lambda *_: None
    first, waiting = door.come("a"), door.come("b")
    await settle()
    door.admission.expected_wait_s = lambda *_: 30.0
    door.admission.verified(1, Spent(0.0, 1.0, 0.0), now())
    with pytest.raises(ResourceExhaustedStatus) as refused:
        await waiting
    assert refused.value.metadata["expected_wait_ms"] == "30000"
    assert refused.value.retry_after_s == 4.0
    await door.go("a")
    await first


async def test_who_loses_its_place_is_told_the_expected_wait(monkeypatch):
    monkeypatch.setattr("specmesh.orchestrator.admission.entrance.MAX_WAITING", 2)
    door = Door(1, max_wait_s=4.0)
    door.admission.expected_wait_s = lambda num_before, *_: 1.5 * num_before
    tasks = [door.come(f"a{i}", identity="alice") for i in range(3)]
    await settle()
    tasks.append(door.come("b0", identity="bob"))
    with pytest.raises(ResourceExhaustedStatus) as refused:
        await tasks.pop(2)  # the last of alice's, behind one
    assert refused.value.metadata["expected_wait_ms"] == "1500"
    for name in ("a0", "a1", "b0"):
        await door.go(name)
    await asyncio.gather(*tasks)


async def test_identities_take_turns_however_many_answers_each_has_waiting():
    door = Door(1)
    tasks = [door.come(f"a{i}", identity="alice") for i in range(4)]
    await settle()
    tasks += [door.come(f"b{i}", identity="bob") for i in range(2)]
    await settle()
    for name in ("a0", "a1", "b0", "a2", "b1", "a3"):
        assert door.order[-1] == name
        await door.go(name)
    await asyncio.gather(*tasks)


async def test_the_next_answer_is_of_the_identity_that_has_fewest_running():
    door = Door(3)
    tasks = [door.come(f"a{i}", identity="alice") for i in range(5)]
    await settle()
    tasks += [door.come(f"b{i}", identity="bob") for i in range(2)]
    await settle()
    assert door.order == ["a0", "a1", "a2"]
    await door.go("a0")
    await door.go("b0")
    assert door.order[3:] == ["b0", "b1"]
    for name in ("a1", "a2", "b1", "a3", "a4"):
        await door.go(name)
    await asyncio.gather(*tasks)


async def test_resumed_answers_of_identities_take_turns_too():
    door = Door(1)
    tasks = [door.come(f"a{i}", identity="alice", resumed=True) for i in range(4)]
    await settle()
    tasks.append(door.come("b0", identity="bob", resumed=True))
    await settle()
    await door.go("a0")
    assert door.order == ["a0", "a1", "b0"]
    for name in ("a1", "b0", "a2", "a3"):
        await door.go(name)
    await asyncio.gather(*tasks)


async def test_a_resumed_answer_takes_the_place_of_a_new_one(monkeypatch):
    """Also of one of its own identity: where callers are anonymous, all have the same."""
    monkeypatch.setattr("specmesh.orchestrator.admission.entrance.MAX_WAITING", 2)
    door = Door(1)
    tasks = [door.come(name) for name in ("a", "b", "c")]
    tasks += [door.come(f"r{i}", resumed=True) for i in range(3)]
    await settle()
    for task in tasks[1:3]:
        with pytest.raises(ResourceExhaustedStatus):
            await task
    for name in ("a", "r0", "r1", "r2"):
        await door.go(name)
    await asyncio.gather(tasks[0], *tasks[3:])
    assert door.order == ["a", "r0", "r1", "r2"]


async def test_who_says_that_all_answers_are_resumed_keeps_nobody_else_out(monkeypatch):
    monkeypatch.setattr("specmesh.orchestrator.admission.entrance.MAX_RESUMED_WAITING", 2)
    door = Door(1)
    tasks = [door.come(f"a{i}", identity="alice", resumed=True) for i in range(4)]
    await settle()
    assert door.entrance.num_waiting == 2
    with pytest.raises(ResourceExhaustedStatus):
        await door.come("a4", identity="alice", resumed=True)
    tasks += [door.come("new"), door.come("b0", identity="bob", resumed=True)]
    await settle()
    with pytest.raises(ResourceExhaustedStatus):
        await tasks[3]  # the last of alice's
    for name in ("a0", "a1", "b0", "a2", "new"):
        await door.go(name)
    await asyncio.gather(*tasks[:3], *tasks[4:])
    assert door.order[-1] == "new"


async def test_who_runs_more_by_saying_that_all_are_resumed_leaves_others_their_share():
    door = Door(4)
    tasks = [door.come(f"a{i}", identity="alice", resumed=True) for i in range(12)]
    await settle()
    assert len(door.order) == 8  # twice the room, as nobody else is there
    tasks += [door.come(f"b{i}", identity="bob") for i in range(3)]
    await settle()
    for name in ("a0", "a1", "a2"):
        await door.go(name)
    assert door.order[8:] == ["b0", "b1", "a8"]  # half of the room is bob's
    await door.go("b0")
    assert door.order[11:] == ["b2"]
    for name in ("b1", "b2", *(f"a{i}" for i in range(3, 12))):
        await door.go(name)
    await asyncio.gather(*tasks)


async def test_who_says_that_all_are_resumed_makes_nobody_else_wait_in_vain():
    door = Door(4, max_wait_s=4.0)
    door.admission.expected_wait_s = lambda num_before, size, _: (
        max(0, door.admission.num_running - size) + num_before
    )
    tasks = [door.come(f"a{i}", identity="alice", resumed=True) for i in range(40)]
    await settle()
    tasks.append(door.come("b", identity="bob"))
    await settle()
    door.admission.verified(4, Spent(0.0, 1.0, 0.0), now())
    await settle()
    await door.go("a0")
    assert door.order[8:] == ["b"]
    for name in ("b", *(f"a{i}" for i in range(1, 40))):
        await door.go(name)
    await asyncio.gather(*tasks)


async def test_resumed_answers_leave_new_ones_of_others_half_of_the_entrance(monkeypatch):
    monkeypatch.setattr("specmesh.orchestrator.admission.entrance.MAX_WAITING", 4)
    door = Door(1)
    tasks = [door.come("b0", identity="bob"), door.come("b1", identity="bob")]
    await settle()
    tasks += [door.come(f"a{i}", identity="alice", resumed=True) for i in range(6)]
    tasks.append(door.come("c", identity="carol"))
    await settle()
    assert not any(task.done() for task in tasks)
    for name in ("b0", "a0", "b1", "c", *(f"a{i}" for i in range(1, 6))):
        await door.go(name)
    await asyncio.gather(*tasks)


async def test_answers_of_all_identities_are_resumed_at_once_whoever_has_more_of_them():
    """An orchestrator has died: new answers wait, except for those of a newcomer."""
    door = Door(4)
    tasks = [door.come(f"a{i}", identity="alice") for i in range(3)]
    tasks.append(door.come("b0", identity="bob"))
    await settle()
    tasks += [door.come(f"new{i}", identity="alice") for i in range(2)]
    tasks += [door.come(f"r{i}", identity="alice", resumed=True) for i in range(3)]
    tasks.append(door.come("s0", identity="bob", resumed=True))
    await settle()
    assert door.order[4:] == ["r0", "r1", "r2", "s0"]
    for name in ("a0", "a1", "a2", "b0", "r0", "r1", "r2", "s0", "new0", "new1"):
        await door.go(name)
    await asyncio.gather(*tasks)


async def test_a_resumed_answer_that_waited_in_vain_is_to_come_again_soon():
    door = Door(1, max_wait_s=0.05)
    tasks = [door.come("a"), door.come("r0", resumed=True)]
    await settle()
    with pytest.raises(ResourceExhaustedStatus) as refused:
        await door.come("r1", resumed=True)
    assert refused.value.retry_after_s <= 0.5
    for name in ("a", "r0"):
        await door.go(name)
    await asyncio.gather(*tasks)


async def test_who_fills_the_entrance_keeps_nobody_else_out(monkeypatch):
    monkeypatch.setattr("specmesh.orchestrator.admission.entrance.MAX_WAITING", 2)
    door = Door(2)
    tasks = [door.come(f"a{i}", identity="alice") for i in range(4)]
    await settle()
    with pytest.raises(ResourceExhaustedStatus):
        await door.come("a4", identity="alice")
    tasks.append(door.come("b0", identity="bob"))
    await settle()
    with pytest.raises(ResourceExhaustedStatus) as refused:
        await tasks[3]  # the last of alice's
    assert refused.value.reason == "OVERLOADED"
    with pytest.raises(ResourceExhaustedStatus):  # now each of them has one
        await door.come("b1", identity="bob")
    for name in ("a0", "a1", "b0", "a2"):
        await door.go(name)
    await asyncio.gather(*(task for task in tasks if task is not tasks[3]))
    assert door.order == ["a0", "a1", "b0", "a2"]


async def test_who_is_refused_before_any_answer_has_proceeded_is_told_no_wait(monkeypatch):
    monkeypatch.setattr("specmesh.orchestrator.admission.entrance.MAX_WAITING", 1)
    door = Door(1)
    door.admission.expected_wait_s = lambda *_: None
    tasks = [door.come("a"), door.come("b")]
    await settle()
    with pytest.raises(ResourceExhaustedStatus) as refused:
        await door.come("c")
    assert refused.value.message == "1 answers are running and 1 are waiting"
    assert "expected_wait_ms" not in refused.value.metadata
    for name in "ab":
        await door.go(name)
    await asyncio.gather(*tasks)


async def test_who_would_wait_too_long_behind_answers_of_one_identity_may_wait_as_another():
    door = Door(1, max_wait_s=4.0)
    door.admission.expected_wait_s = lambda num_before, *_: 1.5 * num_before
    tasks = [door.come(f"a{i}", identity="alice") for i in range(3)]
    await settle()
    with pytest.raises(ResourceExhaustedStatus):
        await door.come("a3", identity="alice")  # behind two
    tasks.append(door.come("b0", identity="bob"))
    await settle()
    assert door.entrance.num_waiting == 3
    for name in ("a0", "a1", "b0", "a2"):
        await door.go(name)
    await asyncio.gather(*tasks)
    assert door.order == ["a0", "a1", "b0", "a2"]
