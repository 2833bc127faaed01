"""Speeds on cores that somebody else slows down."""

import asyncio
import os
import random
import signal
import time

import pytest

from specmesh.cli.local.process import StartError
from specmesh.tools.profile.measure.stillness import Pace, on_still_cores
from specmesh.tools.profile.measure.watch import CoreWatch

SPEEDS = {"speculative": 40.0, "tree": 36.0, "heads": 50.0}
POWERS = {"target": 0.7, "drafter": 0.3}
STILL_MS = 0.5


def pace(way, slowness):
    took_part = {role: by for role, by in slowness.items() if way != "heads" or role == "target"}
    speed = SPEEDS[way]
    for role, by in took_part.items():
        speed /= by ** POWERS[role]
    return Pace(speed, {role: STILL_MS * by for role, by in took_part.items()})


def test_what_cores_were_slow_at_is_taken_out_of_each_speed():
    rng = random.Random(2)
    paces = {
        way: {
            at: pace(way, {role: rng.choice([1.0, 1.3, 1.7]) for role in POWERS}) for at in range(8)
        }
        for way in SPEEDS
    }
    found = on_still_cores(paces)
    for way, speed in SPEEDS.items():
        assert list(found[way].values()) == pytest.approx([speed] * 8)


def test_ways_tried_at_different_times_are_compared_as_if_all_had_been_still():
    """A way is not better for having been tried while its cores were free."""
    slowness = [(1.0, 1.0), (1.6, 1.0), (1.0, 1.6), (1.6, 1.6)]
    moments = [dict(zip(POWERS, each, strict=True)) for each in slowness]
    lucky = {at: pace("tree", each) for at, each in enumerate(moments[:3])}
    unlucky = {at: pace("speculative", each) for at, each in enumerate(moments[1:])}
    found = on_still_cores({"tree": lucky, "speculative": unlucky})
    assert min(found["speculative"].values()) == pytest.approx(40.0)
    assert max(found["tree"].values()) == pytest.approx(36.0)


@pytest.mark.parametrize("core_ms", [{}, {"target": 0.5}])
def test_speeds_stay_where_nobody_watched_or_the_cores_were_alike(core_ms):
    paces = {"a": {0: Pace(10.0, core_ms), 3: Pace(12.0, core_ms)}, "b": {0: Pace(7.0, core_ms)}}
    assert on_still_cores(paces) == {"a": {0: 10.0, 3: 12.0}, "b": {0: 7.0}}


def test_a_core_does_not_slow_a_round_by_more_than_itself():
    paces = {"a": {0: Pace(10.0, {"target": 0.5}), 1: Pace(5.0, {"target": 0.6})}}
    assert on_still_cores(paces)["a"][1] == pytest.approx(5.0 * 1.2)


async def test_the_watch_times_work_on_each_roles_cores_and_ends_with_the_block():
    core = min(os.sched_getaffinity(0))
    async with CoreWatch({"target": [core], "drafter": []}) as watch:
        began = time.monotonic()
        before = watch.core_ms(began, began)
        await asyncio.sleep(0.3)
        during = watch.core_ms(began, time.monotonic())
        pid = watch.pid
    assert before.keys() == during.keys() == {"target"}
    assert 0.05 < during["target"] < 100
    assert before != during
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_old_times_are_not_told_once_nothing_watches_any_more():
    async with CoreWatch({"target": [min(os.sched_getaffinity(0))]}) as watch:
        os.kill(watch.pid, signal.SIGKILL)
        await asyncio.wait_for(watch._reading, 5)
        with pytest.raises(StartError, match="has ended"):
            watch.core_ms(0.0, time.monotonic())


async def test_without_cores_nothing_is_watched():
    async with CoreWatch({}) as watch:
        assert watch.pid is None
        assert watch.core_ms(0.0, 1.0) == {}
