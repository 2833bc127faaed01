"""A mesh, through the SDK, as a generator asks it."""

import asyncio

import grpc
import pytest
from tests.client.conftest import (
    FakeOrchestrator,
    breaks_after,
    chunks,
    refuses,
    rest_of_answer,
    serve,
    started,
    whole_answer,
)

from specmesh.load.transports.mesh_transport import MeshDoor
from specmesh.load.transports.tracing import traced
from specmesh.load.transports.transport import LoadRequest, RequestFailed, Served
from specmesh.load.workload.variations import Variation

__all__ = ["serve"]

VARIATION = Variation(strategy="dsi", options={"lookahead": 4}, sampling={"temperature": 0.5})


def call(*said, timeout_s=20.0, system=()):
    return LoadRequest(
        said=said or ("hi",),
        variation=VARIATION,
        max_tokens=12,
        ignore_end=True,
        sampling_seed=5,
        timeout_s=timeout_s,
        system=system,
    )


async def ask(mesh, asked, stop_after=None, **door):
    sizes = []

    def hear(num_tokens, text):
        sizes.append(num_tokens)
        return stop_after is None or sum(sizes) < stop_after

    async with MeshDoor((mesh.address,), **door).open() as transport:
        return await transport.ask(asked, hear), sizes


async def test_an_answer_comes_with_its_tokens_and_its_cost(serve):
    mesh = await serve(FakeOrchestrator([whole_answer]))
    told, sizes = await ask(mesh, call("a ", "b ", "c"))
    assert sizes == [2] * 6
    assert (told.num_prompt_tokens, told.num_output_tokens, told.num_resumes) == (3, 12, 0)
    assert (told.work.num_verified_tokens, told.work.num_wasted_tokens) == (10, 2)
    (asked,) = mesh.requests
    assert asked.text == "a b c"
    assert (asked.speculation.strategy, asked.speculation.lookahead) == ("dsi", 4)
    assert (asked.sampling.temperature, asked.sampling.seed) == (0.5, 5)
    assert (asked.stopping.max_tokens, asked.stopping.ignore_end_of_text) == (12, True)


async def test_a_chat_has_the_roles_of_who_spoke(serve):
    mesh = await serve(FakeOrchestrator([whole_answer]))
    await ask(mesh, call("hi", "hello", "bye", system=("be brief",)), chat=True)
    said = [(each.role, each.content) for each in mesh.requests[0].chat.messages]
    assert said[0] == ("system", "be brief")
    assert said[1:] == [("user", "hi"), ("assistant", "hello"), ("user", "bye")]


async def test_a_stream_that_is_resumed_is_counted(serve):
    mesh = await serve(FakeOrchestrator([breaks_after(4)], [rest_of_answer(4)]))
    told, sizes = await ask(mesh, call())
    assert told.num_resumes == 1
    assert sum(sizes) == 12


async def test_a_refusal_is_not_tried_again_unless_asked_for(serve):
    full = refuses(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", "OVERLOADED")
    mesh = await serve(FakeOrchestrator([full, full, whole_answer]))
    with pytest.raises(RequestFailed, match="full") as failed:
        await ask(mesh, call())
    assert failed.value.reason == "OVERLOADED"
    assert len(mesh.requests) == 1
    told, _ = await ask(mesh, call(), max_retries=3)
    assert told.num_output_tokens == 12


async def test_a_deadline_ends_a_request(serve):
    async def hangs(_):
        yield started()
        for event in chunks(0, 2):
            yield event
        await asyncio.Event().wait()

    mesh = await serve(FakeOrchestrator([hangs]))
    with pytest.raises(RequestFailed) as failed:
        await ask(mesh, call(timeout_s=0.3))
    assert failed.value.reason == "DEADLINE_EXCEEDED"
    async with asyncio.timeout(5):
        await mesh.cancelled.wait()


async def test_cancelling_cancels_the_call(serve):
    async def goes_on(_):
        yield started()
        for event in chunks(0, 6):
            yield event
        await asyncio.Event().wait()

    mesh = await serve(FakeOrchestrator([goes_on]))
    told, sizes = await ask(mesh, call(), stop_after=3)
    assert told is None
    assert sizes == [2, 2]
    async with asyncio.timeout(5):
        await mesh.cancelled.wait()


async def test_a_trace_that_begins_here_goes_on_in_the_mesh(serve):
    mesh = await serve(FakeOrchestrator([whole_answer]))
    with traced() as trace_id:
        await ask(mesh, call())
    version, sent_id, _, flags = mesh.metadata[0]["traceparent"].split("-")
    assert (version, sent_id, flags) == ("00", trace_id, "01")


async def test_the_model_is_the_first_that_the_mesh_names(serve):
    mesh = await serve(FakeOrchestrator([]))
    async with MeshDoor((mesh.address,)).open() as transport:
        assert await transport.served() == Served("toy", has_strategies=True)
    async with MeshDoor((mesh.address,), model="mine").open() as transport:
        assert (await transport.served()).model == "mine"
