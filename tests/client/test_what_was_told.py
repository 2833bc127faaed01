"""What an orchestrator told of an answer that broke goes with it to the one that carries it on."""

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from tests.client.conftest import TOKENS, FakeOrchestrator, breaks_after, refuses, rest_of_answer

from specmesh.client import AsyncClient, SavedSession, Unavailable
from specmesh.v1 import generation_pb2 as pb

BOTH_WAYS = True

TEXT = "".join(f"{token} " for token in TOKENS)
TOLD = {"prompt_digest": b"d" * 16, "max_tokens": 12}
RECEIVED = pb.Received(token_ids=TOKENS[:4], **TOLD)
WITHOUT = pb.Received(token_ids=TOKENS[:4])
LOST = refuses(grpc.StatusCode.NOT_FOUND, reason="SESSION_NOT_FOUND")
CHANGED = refuses(grpc.StatusCode.UNAVAILABLE, reason="PROMPT_CHANGED")


def does_not_know(field):
    info = ErrorInfo(reason="UNKNOWN_FIELD", domain="specmesh.dev", metadata={"field": field})
    return refuses(grpc.StatusCode.INVALID_ARGUMENT, "unknown", "", info)


async def test_prompt_and_length_are_brought_back(serve):
    fake = await serve(
        FakeOrchestrator([breaks_after(4, **TOLD), rest_of_answer(4, epoch=3)], [LOST])
    )
    async with AsyncClient(fake.address) as client:
        assert (await client.generate("hello")).text == TEXT
    assert [fake.resumes[0].received, fake.requests[1].received] == [RECEIVED] * 2


async def test_a_saved_answer_brings_them_back_from_any_process(serve):
    fake = await serve(
        FakeOrchestrator([breaks_after(4, **TOLD), rest_of_answer(4, epoch=3)], [LOST])
    )
    async with AsyncClient(fake.address, max_resumes=0) as client:
        stream = client.generate("hello")
        with pytest.raises(Unavailable):
            await stream
        saved = SavedSession.from_json(stream.session.to_json())
        assert (await client.resume(saved)).text == TEXT
    assert [fake.resumes[0].received, fake.requests[1].received] == [RECEIVED] * 2


async def test_an_older_orchestrator_that_does_not_know_them_is_asked_without(serve):
    fake = await serve(
        FakeOrchestrator([breaks_after(4, resumable=False, **TOLD), does_not_know("received.3")])
    )
    older = await serve(FakeOrchestrator([does_not_know("received.3"), rest_of_answer(4)]))
    async with AsyncClient(fake.address, older.address) as client:
        assert (await client.generate("hello")).text == TEXT
    assert [each.received for each in older.requests] == [RECEIVED, WITHOUT]


async def test_an_answer_whose_prompt_has_changed_is_looked_for_in_the_store(serve):
    fake = await serve(
        FakeOrchestrator(
            [breaks_after(4, resumable=False, **TOLD), CHANGED], [rest_of_answer(4, epoch=3)]
        )
    )
    async with AsyncClient(fake.address) as client:
        assert (await client.generate("hello")).text == TEXT
    assert fake.resumes[0].received == RECEIVED


async def test_an_answer_whose_prompt_nobody_has_any_more_fails_with_that_reason(serve):
    scripts = [breaks_after(4, resumable=False, **TOLD), CHANGED, CHANGED]
    fake = await serve(FakeOrchestrator(scripts, [LOST] * 2))
    async with AsyncClient(fake.address, max_resumes=2) as client:
        with pytest.raises(Unavailable) as raised:
            await client.generate("hello")
    assert raised.value.reason == "PROMPT_CHANGED"
    assert len(fake.requests) == 3
