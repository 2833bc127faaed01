"""One timer rings all that wait, each when it is due."""

from __future__ import annotations

import asyncio

import pytest

from specmesh.orchestrator.replicas.retries.alarm import Alarm


class Sleeper:
    """Is due once, in so many seconds."""

    def __init__(self, seconds: float, error: Exception | None = None) -> None:
        self.due = asyncio.get_running_loop().time() + seconds
        self.rung = asyncio.Event()
        self._error = error

    def rings(self, now: float) -> None:
        assert now >= self.due
        self.due = float("inf")
        self.rung.set()
        if self._error is not None:
            raise self._error


async def test_each_is_rung_when_it_is_due_whenever_it_was_added():
    alarm = Alarm()
    late, early = Sleeper(0.1), Sleeper(0.02)
    alarm.add(late)
    alarm.add(early)
    await asyncio.wait_for(early.rung.wait(), 10)
    assert not late.rung.is_set()
    await asyncio.wait_for(late.rung.wait(), 10)


async def test_what_was_discarded_is_not_rung():
    alarm = Alarm()
    gone, other = Sleeper(0.01), Sleeper(0.03)
    for each in (gone, other):
        alarm.add(each)
    alarm.discard(gone)
    await asyncio.wait_for(other.rung.wait(), 10)
    assert not gone.rung.is_set()


async def test_one_that_has_put_off_its_time_is_rung_then():
    alarm = Alarm()
    sleeper = Sleeper(0.01)
    alarm.add(sleeper)
    sleeper.due += 0.05
    await asyncio.wait_for(sleeper.rung.wait(), 10)


@pytest.mark.filterwarnings("ignore")
async def test_one_that_fails_leaves_the_others_to_be_rung():
    alarm = Alarm()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    bad, good = Sleeper(0.01, ValueError("a bug")), Sleeper(0.02)
    for each in (bad, good):
        alarm.add(each)
    await asyncio.wait_for(good.rung.wait(), 10)
