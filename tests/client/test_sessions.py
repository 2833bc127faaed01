"""Answers beyond their stream: carried on elsewhere, looked up, cancelled; and in batches."""

import asyncio

import grpc
import pytest
from tests.client.conftest import (
    TOKENS,
    FakeOrchestrator,
    breaks_after,
    chunks,
    finished,
    refuses,
    rest_of_answer,
    started,
    taken_at,
)

from specmesh.client import (
    AsyncClient,
    ChatMessage,
    Client,
    FinishReason,
    NotFound,
    SavedSession,
    SessionCancelled,
    SessionState,
    SessionTaken,
    SpecmeshError,
    TokenLogprob,
    TokenLogprobs,
    Unavailable,
)
from specmesh.client.testing import FakeMesh
from specmesh.v1 import events_pb2
from specmesh.v1 import generation_pb2 as pb

BOTH_WAYS = True

TEXT = "".join(f"{token} " for token in TOKENS)


async def test_an_error_brings_what_was_received_and_carries_it_on(serve):
    fake = await serve(FakeOrchestrator([breaks_after(4)], [rest_of_answer(4)]))
    async with AsyncClient(fake.address, max_resumes=0) as client:
        with pytest.raises(Unavailable) as caught:
            await client.complete("hello")
        received = caught.value.session
        assert (received.session_id, received.text) == ("s-1", "100 101 102 103 ")
        assert (await client.resume(received)).text == TEXT


async def test_an_error_before_the_answer_has_begun_brings_nothing(serve):
    fake = await serve(FakeOrchestrator([refuses(grpc.StatusCode.NOT_FOUND)]))
    async with AsyncClient(fake.address) as client:
        with pytest.raises(NotFound) as caught:
            await client.complete("hello")
    assert caught.value.session is None


async def test_a_stream_that_nobody_has_read_has_no_text():
    stream = AsyncClient().generate("hello")
    with pytest.raises(RuntimeError, match="the stream has not been read"):
        _ = stream.text
    blocking = Client().generate("hello")
    with pytest.raises(RuntimeError, match="the stream has not been read"):
        _ = blocking.text
    with pytest.raises(RuntimeError, match="the stream has not been read"):
        _ = blocking.token_ids


async def test_an_answer_is_carried_on_by_another_client_from_what_was_saved(serve):
    fake = await serve(FakeOrchestrator([breaks_after(4)], [rest_of_answer(4)]))
    async with AsyncClient(fake.address, max_resumes=0) as client:
        stream = client.generate("hello")
        with pytest.raises(Unavailable):
            await stream
    saved = SavedSession.from_json(stream.session.to_json())
    assert saved == stream.session
    assert "secret" not in repr(saved)
    async with AsyncClient(fake.address) as other:
        resumed = other.resume(saved)
        assert resumed.session == saved
        assert resumed.text == "100 101 102 103 "
        got = [token async for chunk in resumed for token in chunk.token_ids]
    assert got == list(TOKENS[4:])
    assert (resumed.result.text, resumed.result.token_ids) == (TEXT, TOKENS)
    assert fake.resumes[0] == pb.ResumeRequest(
        session_id="s-1",
        resume_token=b"secret",
        epoch=2,
        received=pb.Received(token_ids=TOKENS[:4]),
    )


async def test_text_held_back_until_the_end_is_not_said_again_to_whoever_has_read_it(serve):
    async def script(_):
        yield started()
        for event in chunks(0, len(TOKENS)):
            yield event
        yield finished(text="tail")

    async def end(_):
        yield started(epoch=2)
        yield finished(text="tail")

    fake = await serve(FakeOrchestrator([script], [end, end]))
    async with AsyncClient(fake.address) as client:
        stream = client.generate("hello")
        async for chunk in stream:
            if chunk.text == "tail":
                break
        for saved in (stream.session, SavedSession.from_json(stream.session.to_json())):
            resumed = client.resume(saved)
            assert [chunk async for chunk in resumed] == []
            assert resumed.result.text == resumed.result.message.content == f"{TEXT}tail"


async def test_without_the_store_a_saved_answer_goes_on_from_what_was_saved(serve):
    lost = refuses(grpc.StatusCode.NOT_FOUND, reason="SESSION_NOT_FOUND")
    fake = await serve(FakeOrchestrator([breaks_after(4), rest_of_answer(4, epoch=3)], [lost]))
    async with AsyncClient(fake.address, max_resumes=0) as client:
        stream = client.generate("hello", max_tokens=12)
        with pytest.raises(Unavailable):
            await stream
        assert (await client.resume(stream.session)).text == TEXT
    again = fake.requests[1]
    assert (again.text, again.stopping.max_tokens, again.sampling.seed) == ("hello", 12, 7)
    assert again.received == pb.Received(token_ids=TOKENS[:4])
    assert (again.epoch, again.model_fingerprint) == (3, "w-1")


async def test_id_and_token_are_enough_and_take_the_session_whatever_its_epoch(serve):
    stale = taken_at(41)
    fake = await serve(FakeOrchestrator(resume=[stale, rest_of_answer(0, epoch=42), stale, stale]))
    async with AsyncClient(fake.address) as client:
        assert (await client.resume(SavedSession("s-1", b"secret"))).text == TEXT
        with pytest.raises(SessionTaken):
            await client.resume(SavedSession("s-1", b"secret"))
    assert [each.epoch for each in fake.resumes] == [2, 42, 2, 42]


def test_a_session_that_nobody_has_is_not_found():
    with FakeMesh() as mesh, Client(mesh.address) as client:
        nobody = SavedSession("no-such", b"")
        with pytest.raises(NotFound):
            client.resume(nobody).complete()
        with pytest.raises(NotFound):
            client.get_session(SavedSession("no-such", b""))
        with pytest.raises(NotFound):
            client.cancel_session(SavedSession("no-such", b""))


def test_a_session_is_looked_up_and_cancelled():
    with FakeMesh() as mesh, Client(mesh.address) as client:
        mesh.answer("one ", "two ", "three", breaks_after=2)
        with Client(mesh.address, max_resumes=0) as impatient:
            stream = impatient.generate("count")
            with pytest.raises(Unavailable):
                stream.complete()
        saved = stream.session
        found = client.get_session(saved)
        assert (found.state, found.text, found.token_ids) == (
            SessionState.ACTIVE,
            "one two ",
            (0, 1),
        )
        assert found.finish_reason is None
        client.cancel_session(saved)
        found = client.get_session(saved)
        assert found.state is SessionState.CANCELLED
        with pytest.raises(SessionCancelled):
            client.resume(saved).complete()


def test_a_finished_session_says_why():
    with FakeMesh() as mesh, Client(mesh.address) as client:
        mesh.answer("all")
        stream = client.generate("count")
        stream.complete()
        found = client.get_session(stream.session)
    assert (found.state, found.finish_reason) == (SessionState.FINISHED, FinishReason.STOP)
    assert found.expire_time.tzinfo is not None


async def test_a_batch_keeps_its_order_its_bound_and_its_errors(serve):
    at_work = most = 0
    wait = asyncio.Event()

    def script(number):
        async def play(context):
            nonlocal at_work, most
            at_work += 1
            most = max(most, at_work)
            if at_work == 3:
                wait.set()
            await wait.wait()
            at_work -= 1
            if number == 2:
                async for event in refuses(grpc.StatusCode.INVALID_ARGUMENT, "2")(context):
                    yield event
            yield started()
            yield finished(text=str(number))

        return play

    class ByPrompt(FakeOrchestrator):
        async def Generate(self, request, context):  # noqa: N802
            async for event in self._play(script(int(request.text)), context):
                yield pb.GenerateResponse(event=event)

    fake = await serve(ByPrompt())
    async with AsyncClient(fake.address) as client:
        answers = await client.generate_many(map(str, range(7)), concurrency=3, seed=1)
        assert await client.generate_many([]) == []
        with pytest.raises(ValueError, match="concurrency"):
            await client.generate_many(["a"], concurrency=0)
        with pytest.raises(ValueError, match="request_id"):
            await client.generate_many(["a"], request_id="mine")
        with pytest.raises(TypeError, match="lookahed"):
            await client.generate_many(["a"], lookahed=1)
    assert [str(each) if number == 2 else each.text for number, each in enumerate(answers)] == [
        str(number) for number in range(7)
    ]
    assert isinstance(answers[2], SpecmeshError)
    assert most == 3


async def test_a_chat_reaches_the_server_as_messages(serve):
    fake = await serve(FakeOrchestrator([rest_of_answer(0)] * 2))
    messages = [{"role": "user", "content": "hi", "name": "Ada"}]
    async with AsyncClient(fake.address) as client:
        await client.chat(messages, template_arguments={"enable_thinking": False}, max_tokens=3)
        await client.chat([ChatMessage("user", "hi")], continue_final_message=True)
        with pytest.raises(TypeError, match="has 'role', 'content' and optionally"):
            client.chat([{"role": "user", "text": "hi"}])
    first, second = (each.chat for each in fake.requests)
    assert [(each.role, each.content, each.name) for each in first.messages] == [
        ("user", "hi", "Ada")
    ]
    assert not second.messages[0].name
    assert (first.add_generation_prompt, first.continue_final_message) == (True, False)
    assert dict(first.template_arguments) == {"enable_thinking": False}
    assert fake.requests[0].stopping.max_tokens == 3
    assert (second.add_generation_prompt, second.continue_final_message) == (False, True)


async def test_log_probabilities_come_with_their_tokens(serve):
    async def script(_):
        yield started()
        for event in chunks(0, 2):
            for token in event.chunk.token_ids:
                one = events_pb2.TokenLogprob(token_id=token, logprob=-0.5, text_bytes=b"\xc3")
                event.chunk.logprobs.add(chosen=one, top=[one])
            yield event
        yield finished()

    fake = await serve(FakeOrchestrator([script]))
    async with AsyncClient(fake.address) as client:
        result = await client.generate("hello", num_top_logprobs=1)
    assert fake.requests[0].num_top_logprobs == 1
    expected = [TokenLogprob(token, -0.5, b"\xc3") for token in TOKENS[:2]]
    assert result.logprobs == tuple(TokenLogprobs(each, (each,)) for each in expected)


def test_a_module_level_client_works_in_one_event_loop_after_the_other():
    client = AsyncClient("127.0.0.1:1", max_retries=0)

    async def use(address):
        client._mesh.addresses = (address,)
        stream = client.generate("hello")
        return (await stream).text

    with FakeMesh() as mesh:
        for text in ("first", "second"):
            mesh.answer(text)
            assert asyncio.run(use(mesh.address)) == text
