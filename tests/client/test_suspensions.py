"""Calls that are broken on purpose before a fork go on after it as if nothing had happened."""

import asyncio
import logging

from tests.client.conftest import TOKENS, FakeOrchestrator, rest_of_answer, started

from specmesh.client import AsyncClient, Hooks

BOTH_WAYS = True

NUM_FORKS = 16


async def test_suspensions_as_by_the_forks_of_a_pool_use_up_no_resumes(serve):
    broken = []
    hooks = Hooks(on_retry=broken.append, on_resume=broken.append)
    waiting = asyncio.Queue()

    def waits(epoch):
        async def script(_):
            yield started(epoch)
            waiting.put_nowait(epoch)
            await asyncio.Event().wait()

        return script

    fake = await serve(FakeOrchestrator(map(waits, range(1, NUM_FORKS + 1))))
    fake.generate_scripts.append(rest_of_answer(0, NUM_FORKS + 1))
    fake.resume_scripts = fake.generate_scripts
    async with AsyncClient(fake.address, max_resumes=0, hooks=hooks) as client, asyncio.timeout(20):
        reading = asyncio.ensure_future(client.generate("hello"))
        await suspend_and_reopen(client, NUM_FORKS, waiting)
        assert (await reading).token_ids == TOKENS
    assert broken == []


async def test_suspensions_use_up_no_retries_of_other_calls(serve):
    broken = []
    hooks = Hooks(on_retry=broken.append)
    waiting = asyncio.Queue()

    class Waiting(FakeOrchestrator):
        num_asked = 0

        async def ListModels(self, request, context):  # noqa: N802
            self.num_asked += 1
            if self.num_asked <= NUM_FORKS:
                waiting.put_nowait(self.num_asked)
                await asyncio.Event().wait()
            return await super().ListModels(request, context)

    fake = await serve(Waiting())
    async with AsyncClient(fake.address, max_retries=0, hooks=hooks) as client, asyncio.timeout(20):
        listing = asyncio.ensure_future(client.list_models())
        await suspend_and_reopen(client, NUM_FORKS, waiting)
        assert len(await listing) == 2
    assert broken == []


async def test_a_token_that_comes_during_a_suspension_begins_no_call_before_its_end(serve, caplog):
    caplog.set_level(logging.DEBUG, "specmesh.client")
    begun, given = asyncio.Event(), asyncio.Event()

    async def token():
        begun.set()
        await given.wait()
        return "token"

    fake = await serve(FakeOrchestrator())
    async with AsyncClient(fake.address, token=token) as client, asyncio.timeout(20):
        listing = asyncio.ensure_future(client.list_models())
        await begun.wait()
        await client.suspend()
        given.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert caplog.messages == []
        client.reopen()
        await listing
    assert caplog.messages == [f"channel to {fake.address}"]


async def suspend_and_reopen(client, times, waiting):
    """Break each call that ``waiting`` tells of."""
    for _ in range(times):
        await waiting.get()
        await client.suspend()
        for _ in range(10):  # Whoever waited for the call notices.
            await asyncio.sleep(0)
        client.reopen()
