"""What the mesh refuses, over the wire: the status and the name of the wrong field."""

import asyncio
import time

import grpc
import pytest
from tests.e2e.answers import answer
from tokenizers import Tokenizer

from specmesh import models
from specmesh.client import AsyncClient, InvalidRequest, NotFound, SessionTaken
from specmesh.client.connections.status import from_rpc_error
from specmesh.v1 import generation_pb2 as pb
from specmesh.v1.generation_pb2_grpc import GenerationServiceStub


@pytest.mark.parametrize(
    ("prompt", "options", "field"),
    [
        ("", {}, "text"),
        ([], {}, "tokens.ids"),
        ([5] * 1024, {}, "tokens.ids"),
        ("x = 1\n" * 1024, {}, "text"),
        ([5, 4096], {}, "tokens.ids[1]"),
        ("a", {"temperature": -0.5}, "sampling.temperature"),
        ("a", {"temperature": 101}, "sampling.temperature"),
        ("a", {"temperature": float("nan")}, "sampling.temperature"),
        ("a", {"top_p": 0}, "sampling.top_p"),
        ("a", {"top_p": 1.5}, "sampling.top_p"),
        ("a", {"max_tokens": 0}, "stopping.max_tokens"),
        ("a", {"stop_token_ids": [4096]}, "stopping.stop_token_ids[0]"),
        ("a", {"stop_strings": [""]}, "stopping.stop_strings[0]"),
        ("a", {"stop_strings": ["x"] * 17}, "stopping.stop_strings"),
        ("a", {"strategy": "clairvoyant"}, "speculation.strategy"),
        ("a", {"lookahead": 0}, "speculation.lookahead"),
        ("a", {"lookahead": 65}, "speculation.lookahead"),
    ],
)
async def test_a_wrong_field_is_named(client, prompt, options, field):
    with pytest.raises(InvalidRequest) as refused:
        await client.generate(prompt, **options)
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in refused.value.field_violations] == [field]


async def test_nobody_waits_while_a_huge_text_is_refused(mesh):
    """The text takes longer to tokenize than anybody may wait."""
    text = "x = 1\n" * 80_000
    tokenizer = Tokenizer.from_file(str(models.path(models.TARGET) / "tokenizer.json"))
    began = time.monotonic()
    tokenizer.encode_batch([text])
    tokenizing_s = time.monotonic() - began
    async with (
        AsyncClient(mesh.orchestrator.address) as greedy,
        AsyncClient(mesh.orchestrator.address) as modest,
    ):
        await asyncio.gather(greedy.list_models(), modest.list_models())
        began = time.monotonic()
        huge = asyncio.ensure_future(greedy.generate(text))
        await asyncio.sleep(0)
        while not huge.done():
            await modest.list_models()
        assert time.monotonic() - began < tokenizing_s / 2
        with pytest.raises(InvalidRequest):
            await huge


async def test_a_prompt_that_leaves_room_for_one_token_is_answered(client):
    result = await answer(client, [5] * 1023, temperature=0)
    assert len(result.token_ids) == 1


async def test_an_unknown_model_is_not_found(client):
    with pytest.raises(NotFound) as refused:
        await client.generate("a", model="gpt-0")
    assert refused.value.reason == "MODEL_NOT_FOUND"


async def begin(mesh):
    """What is settled when an answer begins; it is broken off then."""
    async with grpc.aio.insecure_channel(mesh.orchestrator.address) as channel:
        call = GenerationServiceStub(channel).Generate(pb.GenerateRequest(text="def f("))
        return (await call.read()).event.started


async def resume(mesh, **fields):
    """The error of a Resume that must fail."""
    async with grpc.aio.insecure_channel(mesh.orchestrator.address) as channel:
        call = GenerationServiceStub(channel).Resume(pb.ResumeRequest(**fields), timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
    return from_rpc_error(refused.value)


async def test_an_epoch_that_was_used_is_refused(mesh):
    started = await begin(mesh)
    error = await resume(
        mesh, session_id=started.session_id, resume_token=started.resume_token, epoch=1
    )
    assert isinstance(error, SessionTaken)
    assert error.reason == "STALE_EPOCH"
    assert error.metadata == {"current_epoch": "1"}


async def test_a_session_is_not_found_by_who_does_not_know_its_token(mesh):
    started = await begin(mesh)
    error = await resume(mesh, session_id=started.session_id, resume_token=b"guess", epoch=2)
    assert isinstance(error, NotFound)
    assert error.reason == "SESSION_NOT_FOUND"


async def test_an_unknown_session_is_not_found(mesh):
    error = await resume(mesh, session_id="nobody", resume_token=b"guess", epoch=2)
    assert isinstance(error, NotFound)
    assert error.reason == "SESSION_NOT_FOUND"
