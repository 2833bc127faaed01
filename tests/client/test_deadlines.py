"""A deadline that passes after calls that failed says what they failed for."""

import asyncio

import grpc
import pytest
from tests.client.conftest import (
    TOKENS,
    FakeOrchestrator,
    breaks_after,
    chunks,
    refuses,
    rest_of_answer,
    started,
    whole_answer,
)

from specmesh.client import AsyncClient, DeadlineExceeded, Hooks, Timeouts

BOTH_WAYS = True

NOBODY = refuses(grpc.StatusCode.UNAVAILABLE, "none of 2 verifiers is usable", "NO_VERIFIER")
TIMEOUT_S = 0.4


async def never(_):
    await asyncio.Event().wait()
    yield started()


async def goes_on_and_stops(_):
    yield started(epoch=2)
    for event in chunks(4, 6):
        yield event
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("scripts", "resumes"),
    [([NOBODY, NOBODY, never], []), ([breaks_after(4)], [NOBODY, NOBODY, never])],
    ids=["before it began", "after it broke"],
)
async def test_a_deadline_keeps_the_last_reason(serve, scripts, resumes):
    fake = await serve(FakeOrchestrator(scripts, resumes))
    async with AsyncClient(fake.address) as client:
        with pytest.raises(DeadlineExceeded, match="none of 2 verifiers is usable") as raised:
            await client.generate("hello", timeout_s=TIMEOUT_S)
    assert raised.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert raised.value.reason == "NO_VERIFIER"
    assert raised.value.__cause__.reason == "NO_VERIFIER"


async def test_what_was_overcome_is_not_told(serve):
    fake = await serve(FakeOrchestrator([breaks_after(4)], [goes_on_and_stops]))
    async with AsyncClient(fake.address) as client:
        with pytest.raises(DeadlineExceeded) as raised:
            await client.generate("hello", timeout_s=TIMEOUT_S)
    assert raised.value.reason == ""
    assert "gone" not in str(raised.value)


async def test_a_call_with_one_response_keeps_it_too(serve):
    class Nobody(FakeOrchestrator):
        async def ListModels(self, request, context):  # noqa: N802
            self.requests.append(request)
            if len(self.requests) == 3:
                await asyncio.Event().wait()
            async for _ in self._play(NOBODY, context):
                pass

    fake = await serve(Nobody())
    async with AsyncClient(fake.address, timeouts=Timeouts(call_s=TIMEOUT_S)) as client:
        with pytest.raises(DeadlineExceeded, match="verifiers") as raised:
            await client.list_models()
    assert raised.value.reason == "NO_VERIFIER"


async def test_timeouts_that_grpc_cannot_count_are_as_long_as_it_can(serve):
    fake = await serve(FakeOrchestrator([whole_answer]))
    timeouts = Timeouts(connect_s=1e12, generate_s=1e12)
    async with AsyncClient(fake.address, timeouts=timeouts) as client:
        assert (await client.generate("hello")).text


async def test_a_deadline_holds_while_the_token_is_waited_for():
    async with (
        AsyncClient("127.0.0.1:1", token=asyncio.Event().wait) as client,
        asyncio.timeout(10),
    ):
        with pytest.raises(DeadlineExceeded):
            await client.generate("hello", timeout_s=TIMEOUT_S)


async def test_a_token_that_takes_long_is_no_silence_of_the_target(serve, monkeypatch):
    loop, passed_s = asyncio.get_running_loop(), 0.0
    monkeypatch.setattr(loop, "time", lambda now=loop.time: now() + passed_s)
    broken = []
    hooks = Hooks(on_retry=broken.append, on_resume=broken.append)

    async def token():
        nonlocal passed_s
        passed_s += 100
        for _ in range(3):  # Timeouts that have passed end what they limit.
            await asyncio.sleep(0)
        return "token"

    fake = await serve(FakeOrchestrator([breaks_after(4, heartbeat_ms=500)], [rest_of_answer(4)]))
    async with AsyncClient(fake.address, token=token, hooks=hooks) as client:
        assert (await client.generate("hello")).token_ids == TOKENS
    assert [str(each.error) for each in broken] == ["gone"]
