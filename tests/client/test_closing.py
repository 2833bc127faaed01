"""A stream that is closed stays closed, whatever its reader is at."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from tests.client.conftest import (
    TOKENS,
    FakeOrchestrator,
    chunks,
    refuses,
    started,
    whole_answer,
)

from specmesh.client import AsyncClient, Cancelled, Client, Hooks, testing
from specmesh.client.testing import FakeMesh

BOTH_WAYS = True


async def silent_after_a_chunk(_):
    yield started()
    yield next(iter(chunks(0, 2)))
    await asyncio.Event().wait()


@pytest.fixture
def ended():
    return []


@pytest.fixture
async def ask(serve, ended):
    """A fake that plays some scripts, and a stream of its first answer."""
    clients = []

    async def ask(*scripts, hooks=None, **options):
        fake = await serve(FakeOrchestrator(scripts, [whole_answer]))
        client = AsyncClient(fake.address, hooks=hooks or Hooks(on_finish=ended.append), **options)
        clients.append(client)
        return fake, client.generate("hello")

    yield ask
    for client in clients:
        await client.aclose()


async def test_reading_on_asks_for_nothing_and_tells_what_was_received(ask, ended):
    fake, stream = await ask(whole_answer)
    iterator = aiter(stream)
    await anext(iterator)
    await stream.aclose()
    with pytest.raises(Cancelled, match="closed") as caught:
        await anext(iterator)
    assert caught.value.session.token_ids == stream.token_ids == TOKENS[:2]
    assert (len(fake.requests), len(fake.resumes)) == (1, 0)
    assert [(each.session_id, each.result, each.error) for each in ended] == [("s-1", None, None)]


async def test_reading_on_after_a_with_block_likewise(ask):
    fake, stream = await ask(whole_answer)
    async with stream:
        iterator = aiter(stream)
        await anext(iterator)
    with pytest.raises(Cancelled):
        await anext(iterator)
    assert not fake.resumes


async def test_a_reader_that_waits_is_told(ask):
    fake, stream = await ask(silent_after_a_chunk)
    iterator = aiter(stream)
    await anext(iterator)
    waiting = asyncio.ensure_future(anext(iterator))
    await asyncio.sleep(0)
    await stream.aclose()
    async with asyncio.timeout(5):
        with pytest.raises(Cancelled):
            await waiting
        await fake.cancelled.wait()
    assert not fake.resumes


async def test_a_reader_that_is_cancelled_as_well_is_cancelled(ask):
    _, stream = await ask(silent_after_a_chunk)
    iterator = aiter(stream)
    await anext(iterator)
    waiting = asyncio.ensure_future(anext(iterator))
    await asyncio.sleep(0)
    await stream.aclose()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_stream_that_is_closed_before_it_is_read_sends_no_request(ask):
    fake, stream = await ask(whole_answer)
    await stream.aclose()
    with pytest.raises(Cancelled):
        await stream
    assert not fake.requests


async def test_a_stream_that_is_closed_while_its_first_call_is_prepared_sends_none(ask):
    begun, given = asyncio.Event(), asyncio.Event()

    async def token():
        begun.set()
        await given.wait()
        return "token"

    fake, stream = await ask(whole_answer, token=token)
    reading = asyncio.ensure_future(anext(aiter(stream)))
    await begun.wait()
    await stream.aclose()
    given.set()
    with pytest.raises(Cancelled):
        await reading
    assert not fake.requests


async def test_a_pause_between_calls_ends(ask):
    paused = asyncio.Event()
    full = refuses(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "full",
        "OVERLOADED",
        RetryInfo(retry_delay=Duration(seconds=60)),
    )
    fake, stream = await ask(full, hooks=Hooks(on_retry=lambda _: paused.set()))
    reading = asyncio.ensure_future(anext(aiter(stream)))
    async with asyncio.timeout(5):
        await paused.wait()
        await stream.aclose()
        with pytest.raises(Cancelled):
            await reading
    assert len(fake.requests) == 1


async def test_closing_after_the_end_does_nothing(ask):
    _, stream = await ask(whole_answer)
    result = await stream
    await stream.aclose()
    assert await stream is result


async def test_closing_the_client_tells_whoever_reads(serve):
    fake = await serve(FakeOrchestrator([silent_after_a_chunk], [whole_answer]))
    client = AsyncClient(fake.address)
    iterator = aiter(client.generate("hello"))
    await anext(iterator)
    waiting = asyncio.ensure_future(anext(iterator))
    await asyncio.sleep(0)
    await client.aclose()
    async with asyncio.timeout(5):
        with pytest.raises(Cancelled, match="closed") as caught:
            await waiting
    assert caught.value.session.token_ids == TOKENS[:2]
    assert not fake.resumes


@pytest.mark.parametrize("name", ["ListModels", "Score"])
async def test_closing_the_client_tells_whoever_waits_for_another_call(serve, name):
    begun = asyncio.Event()

    async def never_answers(self, request, context):
        begun.set()
        await asyncio.Event().wait()

    fake = await serve(type("SilentOrchestrator", (FakeOrchestrator,), {name: never_answers})())
    client = AsyncClient(fake.address)
    call = client.list_models() if name == "ListModels" else client.score("hello")
    waiting = asyncio.ensure_future(call)
    async with asyncio.timeout(5):
        await begun.wait()
        await client.aclose()
        with pytest.raises(Cancelled, match="the client was closed"):
            await waiting


async def test_a_call_that_is_cancelled_while_its_client_is_closed_is_cancelled(serve):
    given = asyncio.Event()

    async def token():
        given.set()
        return await asyncio.Event().wait()

    client = AsyncClient("127.0.0.1:1", token=token)
    waiting = asyncio.ensure_future(client.list_models())
    await given.wait()
    await client.aclose()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_closing_the_client_while_a_call_is_prepared_sends_none(serve):
    begun, given = asyncio.Event(), asyncio.Event()

    async def token():
        begun.set()
        await given.wait()
        return "token"

    fake = await serve(FakeOrchestrator())
    client = AsyncClient(fake.address, token=token)
    waiting = asyncio.ensure_future(client.list_models())
    await begun.wait()
    await client.aclose()
    given.set()
    with pytest.raises(Cancelled, match="the client was closed"):
        await waiting


async def test_closing_a_client_that_is_suspended_tells_whoever_waits():
    client = AsyncClient("127.0.0.1:1")
    await client.suspend()
    waiting = asyncio.ensure_future(client.list_models())
    await asyncio.sleep(0)
    await client.aclose()
    async with asyncio.timeout(5):
        with pytest.raises(Cancelled, match="the client was closed"):
            await waiting


def test_a_thread_that_waits_for_a_call_while_another_closes_the_client_is_told(monkeypatch):
    waiting, over = threading.Event(), threading.Event()

    def never_answers(self, request, context):
        context.add_callback(over.set)
        waiting.set()
        over.wait(20)

    monkeypatch.setattr(testing._Tokenizer, "Tokenize", never_answers)
    with FakeMesh() as mesh, ThreadPoolExecutor(1) as another:
        client = Client(mesh.address)
        call = another.submit(client.tokenize, "hello")
        assert waiting.wait(20)
        client.close()
        with pytest.raises(Cancelled):
            call.result(20)
