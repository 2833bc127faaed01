"""A second try beside the first, down to the order of steps of the event loop."""

import asyncio

import pytest

from specmesh.orchestrator.replicas.retries.hedging import Hedge


class Race:
    """Two tries whose answers come when the test says so; the second has begun."""

    def __init__(self):
        loop = asyncio.get_running_loop()
        self.first, self.second = loop.create_future(), loop.create_future()

    async def __aenter__(self):
        begun = asyncio.Event()

        async def first():
            return await self.first

        async def second():
            begun.set()
            return await self.second

        self.hedge = Hedge(0.0, may_begin=lambda: True, second=second)
        self.task = asyncio.create_task(self.hedge.race(first()))
        await begun.wait()
        return self

    async def __aexit__(self, *_):
        assert self.task.done()

    async def answer(self):
        async with asyncio.timeout(10):
            return await self.task


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
@pytest.mark.parametrize("first", ["first", None])
async def test_two_tries_that_end_in_one_step_of_the_event_loop_give_an_answer(order, first):
    answers = {"first": first, "second": "second"}
    async with Race() as race:
        for name in order:
            getattr(race, name).set_result(answers[name])
        assert await race.answer() in {"first", "second"}
    assert not race.task.cancelling()


async def test_a_second_try_that_answers_first_ends_the_first():
    async with Race() as race:
        race.second.set_result("second")
        assert await race.answer() == "second"
    assert race.hedge.overtaken
    assert race.first.cancelled()
    assert not race.task.cancelling()


async def test_a_race_that_is_cancelled_cancels_both_tries():
    async with Race() as race:
        race.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await race.answer()
    assert race.first.cancelled()
    assert race.second.cancelled()
