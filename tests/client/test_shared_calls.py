"""Answers that share a call: each is as if it had its own."""

import asyncio
import socket
from contextlib import aclosing

import grpc
import pytest
from tests.client.conftest import (
    TOKENS,
    FakeOrchestrator,
    chunks,
    finished,
    refuses,
    rest_of_answer,
    started,
    whole_answer,
)

from specmesh.client import AsyncClient, Cancelled, Hooks, NotFound, Unauthenticated
from specmesh.client.connections import channels
from specmesh.client.connections.shared import answer, call, calls
from specmesh.v1 import events_pb2
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1.generation_pb2_grpc import (
    GenerationServiceServicer,
    add_GenerationServiceServicer_to_server,
)

NUM_ANSWERS = 8
Code = grpc.StatusCode


class Counting(FakeOrchestrator):
    """Keeps with which token each of its calls that carry many was opened; resumes every answer."""

    def __init__(self, generate=()):
        super().__init__(generate)
        self.opened_with = []
        self.num_open = 0

    async def GenerateMany(self, request_iterator, context):  # noqa: N802
        self.opened_with.append(dict(context.invocation_metadata()).get("authorization"))
        self.num_open += 1
        try:
            async with aclosing(super().GenerateMany(request_iterator, context)) as messages:
                async for message in messages:
                    yield message
        finally:
            self.num_open -= 1

    async def Resume(self, request, context):  # noqa: N802
        self.resumes.append(request)
        rest = rest_of_answer(len(request.received.token_ids))
        async for event in self._play(rest, context):
            yield pb.ResumeResponse(event=event)


def waits_for(event):
    async def script(_):
        yield started()
        await event.wait()
        for each in chunks(0, len(TOKENS)):
            yield each
        yield finished()

    return script


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - it is another task's
            await asyncio.sleep(0.005)


async def test_answers_that_are_under_way_together_have_one_call(serve):
    fake = await serve(Counting([whole_answer] * NUM_ANSWERS))
    async with AsyncClient(fake.address, share_calls=True) as client:
        answers = await asyncio.gather(*(client.generate(f"{n}") for n in range(NUM_ANSWERS)))
    assert [each.token_ids for each in answers] == [TOKENS] * NUM_ANSWERS
    assert len(fake.opened_with) == 1
    assert sorted(each.text for each in fake.requests) == [f"{n}" for n in range(NUM_ANSWERS)]


async def test_each_request_has_its_own_metadata_and_each_token_its_own_call(serve):
    fake = await serve(Counting([whole_answer] * 4))
    names = iter(["alice", "bob", "alice", "bob"])
    async with AsyncClient(fake.address, share_calls=True, token=lambda: next(names)) as client:
        for number in range(4):
            await client.generate(f"{number}")
    assert fake.opened_with == ["Bearer alice", "Bearer bob"]
    told = [each["authorization"] for each in fake.metadata]
    assert told == ["Bearer alice", "Bearer bob", "Bearer alice", "Bearer bob"]
    assert all("specmesh-heartbeats" in each for each in fake.metadata)


async def test_a_refused_answer_leaves_the_others_alone(serve):
    go_on = asyncio.Event()
    fake = await serve(Counting([waits_for(go_on), refuses(Code.NOT_FOUND, "no model", "NONE")]))
    async with AsyncClient(fake.address, share_calls=True) as client:
        first = asyncio.ensure_future(client.generate("first"))
        await until(lambda: fake.requests)
        with pytest.raises(NotFound, match="no model") as caught:
            await client.generate("second")
        go_on.set()
        assert (await first).token_ids == TOKENS
    assert caught.value.reason == "NONE"
    assert len(fake.opened_with) == 1


async def test_once_an_orchestrator_drains_further_answers_have_another_call(serve):
    go_on = asyncio.Event()
    draining = refuses(Code.UNAVAILABLE, "going", "DRAINING")
    fake = await serve(Counting([waits_for(go_on), draining, whole_answer, whole_answer]))
    async with AsyncClient(fake.address, share_calls=True) as client:
        first = asyncio.ensure_future(client.generate("first"))
        await until(lambda: fake.requests)
        assert (await client.generate("second")).token_ids == TOKENS
        assert (await client.generate("third")).token_ids == TOKENS
        assert len(fake.opened_with) == 2
        go_on.set()
        assert (await first).num_resumes == 0


async def test_a_cancelled_answer_leaves_the_others_alone(serve):
    go_on = asyncio.Event()
    fake = await serve(Counting([waits_for(go_on), waits_for(asyncio.Event())]))
    async with AsyncClient(fake.address, share_calls=True) as client:
        first = asyncio.ensure_future(client.generate("first"))
        await until(lambda: fake.requests)
        second = asyncio.ensure_future(client.generate("second"))
        await until(lambda: len(fake.requests) == 2)
        second.cancel()
        async with asyncio.timeout(5):
            await fake.cancelled.wait()
        go_on.set()
        assert (await first).token_ids == TOKENS


async def test_when_a_call_breaks_all_of_its_answers_go_on(serve):
    class Breaking(Counting):
        async def GenerateMany(self, request_iterator, context):  # noqa: N802
            async with aclosing(super().GenerateMany(request_iterator, context)) as messages:
                async for message in messages:
                    yield message
                    if len(self.requests) == NUM_ANSWERS and len(self.opened_with) == 1:
                        break
            if len(self.opened_with) == 1:
                await context.abort(Code.UNAVAILABLE, "gone")

    async def hangs(_):
        yield started()
        for each in chunks(0, 4):
            yield each
        await asyncio.Event().wait()

    broken = []
    fake = await serve(Breaking([hangs] * NUM_ANSWERS))
    hooks = Hooks(on_resume=broken.append)
    async with AsyncClient(fake.address, share_calls=True, hooks=hooks) as client:
        answers = await asyncio.gather(*(client.generate(f"{n}") for n in range(NUM_ANSWERS)))
    assert [each.token_ids for each in answers] == [TOKENS] * NUM_ANSWERS
    assert len(broken) == NUM_ANSWERS


async def test_a_slow_reader_holds_up_nobody_and_loses_nothing(serve, monkeypatch):
    monkeypatch.setattr(answer, "MAX_UNREAD_BYTES", 100)

    async def lively(_):  # sent one by one, however little is read
        yield started()
        for each in chunks(0, len(TOKENS), 1):
            yield each
        await asyncio.Event().wait()

    fake = await serve(Counting([lively, whole_answer]))
    async with (
        AsyncClient(fake.address, share_calls=True) as client,
        client.generate("slow") as slow,
    ):
        reading = aiter(slow)
        read = [*(await anext(reading)).token_ids]
        assert (await client.generate("quick")).token_ids == TOKENS
        async for chunk in reading:
            read += chunk.token_ids
    assert tuple(read) == TOKENS
    assert len(fake.resumes) == 1


async def test_a_call_without_answers_ends_after_a_while(serve, monkeypatch):
    monkeypatch.setattr(call, "IDLE_S", 0.02)
    fake = await serve(Counting([whole_answer] * 2))
    async with AsyncClient(fake.address, share_calls=True) as client:
        await client.generate("one")
        await until(lambda: not fake.num_open)
        await client.generate("another")
    assert len(fake.opened_with) == 2
    assert not fake.cancelled.is_set()


async def test_an_old_call_takes_no_more_answers_and_ends_after_those_it_has(serve, monkeypatch):
    go_on = asyncio.Event()
    fake = await serve(Counting([waits_for(go_on), whole_answer]))
    async with AsyncClient(fake.address, share_calls=True) as client:
        first = asyncio.ensure_future(client.generate("first"))
        await until(lambda: fake.requests)
        monkeypatch.setattr(call, "MAX_AGE_S", 0.0)
        assert (await client.generate("second")).token_ids == TOKENS
        assert fake.num_open == 2
        go_on.set()
        assert (await first).token_ids == TOKENS
        await until(lambda: fake.num_open == 1)
    assert not fake.cancelled.is_set()


async def test_a_call_that_is_full_is_not_asked_for_more(serve, monkeypatch):
    monkeypatch.setattr(call, "MAX_ANSWERS", 1)
    go_on = asyncio.Event()
    fake = await serve(Counting([waits_for(go_on)] * 2))
    async with AsyncClient(fake.address, share_calls=True) as client:
        both = [asyncio.ensure_future(client.generate(f"{n}")) for n in range(2)]
        await until(lambda: len(fake.requests) == 2)
        assert len(fake.opened_with) == 2
        go_on.set()
        assert [each.token_ids for each in await asyncio.gather(*both)] == [TOKENS] * 2


async def test_behind_a_name_several_calls_take_turns(serve, monkeypatch):
    monkeypatch.setattr(channels, "is_name", lambda _: True)
    fake = await serve(Counting([whole_answer] * 20))
    async with AsyncClient(fake.address, share_calls=True) as client:
        await asyncio.gather(*(client.generate(f"{n}") for n in range(20)))
    assert len(fake.opened_with) == calls.NUM_BEHIND_A_NAME


async def test_a_large_request_has_a_call_of_its_own(serve, monkeypatch):
    monkeypatch.setattr(calls, "MAX_REQUEST_BYTES", 100)
    fake = await serve(Counting([whole_answer]))
    async with AsyncClient(fake.address, share_calls=True) as client:
        assert (await client.generate("x" * 200)).token_ids == TOKENS
    assert fake.opened_with == []


async def test_an_older_orchestrator_gets_a_call_for_each_answer(serve):
    asked = []

    class Older(FakeOrchestrator):
        async def GenerateMany(self, request_iterator, context):  # noqa: N802
            asked.append(1)
            async for message in GenerationServiceServicer.GenerateMany(self, None, context):
                yield message

    fake = await serve(Older([whole_answer] * 3))
    retries = []
    async with AsyncClient(
        fake.address, share_calls=True, max_retries=0, hooks=Hooks(on_retry=retries.append)
    ) as client:
        for _ in range(3):
            assert (await client.generate("hello")).token_ids == TOKENS
    assert len(asked) == 1
    assert retries == []


async def test_a_call_that_may_not_be_opened_refuses_its_answers(serve):
    class Guarded(FakeOrchestrator):
        async def GenerateMany(self, request_iterator, context):  # noqa: N802
            await context.abort(Code.UNAUTHENTICATED, "no token")
            yield

    fake = await serve(Guarded())
    async with AsyncClient(fake.address, share_calls=True) as client:
        both = await asyncio.gather(
            *(client.generate(f"{n}") for n in range(2)), return_exceptions=True
        )
    assert [type(each) for each in both] == [Unauthenticated] * 2
    assert both[0] is not both[1]


async def test_heartbeats_are_those_of_each_answer(serve):
    async def silent(_):
        yield started(heartbeat_ms=20)
        await asyncio.Event().wait()

    async def alive(_):
        yield started(heartbeat_ms=20)
        for _ in range(20):
            await asyncio.sleep(0.02)
            yield events_pb2.GenerationEvent(heartbeat=events_pb2.Heartbeat())
        for each in chunks(0, len(TOKENS)):
            yield each
        yield finished()

    fake = await serve(Counting([alive, silent]))
    async with AsyncClient(fake.address, share_calls=True) as client:
        first = asyncio.ensure_future(client.generate("first"))
        await until(lambda: fake.requests)
        assert (await client.generate("second")).num_resumes == 1
        assert (await first).num_resumes == 0


def test_interceptors_would_not_see_the_answers():
    with pytest.raises(ValueError, match="share_calls"):
        AsyncClient(share_calls=True, interceptors=[Passing()])


class Passing(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation, client_call_details, request):
        return await continuation(client_call_details, request)


def test_a_program_that_closes_nothing_may_go_on_in_another_event_loop():
    async def ask():
        fake = Counting([whole_answer])
        server = grpc.aio.server()
        add_GenerationServiceServicer_to_server(fake, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        assert (await AsyncClient(address, share_calls=True).generate("x")).token_ids == TOKENS
        await server.stop(None)

    for _ in range(3):
        asyncio.run(asyncio.wait_for(ask(), 10))


async def test_a_client_is_closed_while_its_call_still_connects():
    with socket.socket() as silent:  # it accepts connections and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        client = AsyncClient(f"127.0.0.1:{silent.getsockname()[1]}", share_calls=True)
        asking = asyncio.ensure_future(client.generate("x"))
        await asyncio.sleep(0.1)
        async with asyncio.timeout(5):
            await client.aclose()
            with pytest.raises(Cancelled):
                await asking


@pytest.mark.parametrize("num_turns", range(1, 12))
async def test_a_client_is_closed_in_any_turn_of_a_calls_beginning(serve, num_turns):
    fake = await serve(Counting([waits_for(asyncio.Event())]))
    client = AsyncClient(fake.address, share_calls=True)
    asking = asyncio.ensure_future(client.generate("x"))
    for _ in range(num_turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await client.aclose()
        with pytest.raises(Cancelled):
            await asking
