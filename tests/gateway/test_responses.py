"""POST /v1/responses."""

from __future__ import annotations

import asyncio

import grpc
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from tests.client.conftest import TOKENS, chunks, refuses, started, whole_answer
from tests.gateway.conftest import never_ends
from tests.gateway.test_chats import with_logprobs
from tests.gateway.test_streams import SOON, connected

from specmesh.gateway.responses import logprobs
from specmesh.v1 import events_pb2

TEXT = "".join(f"{token} " for token in TOKENS)
ASKED = {"model": "toy", "input": "hello"}
PATH = "/v1/responses"


async def stops(_):
    """The model ends this answer itself."""
    yield started()
    for event in chunks(0, 2):
        yield event
    yield events_pb2.GenerationEvent(
        finished=events_pb2.GenerationFinished(finish_reason=events_pb2.FINISH_REASON_END_OF_TEXT)
    )


async def events_of(gateway, body):
    """The events of a stream, as names and their data."""
    response = await gateway.post(PATH, {**body, "stream": True})
    assert response.status_code == 200, response.text
    *blocks, rest = response.text.split("\n\n")
    assert rest == ""
    events = []
    for block in blocks:
        name, data = block.split("\n")
        event = TypeAdapter(ResponseStreamEvent).validate_json(data.removeprefix("data: "))
        assert name == f"event: {event.type}"
        events.append(event)
    return events


async def test_a_response_is_what_openais_package_expects(gateway, orchestrator):
    orchestrator.generate_scripts = [stops] * 2
    answer = await gateway.openai.responses.create(**ASKED, metadata={"run": "7"})
    assert answer.id.startswith("resp_")
    assert (answer.object, answer.model, answer.status) == ("response", "toy", "completed")
    assert answer.output_text == "100 101 "
    assert (answer.error, answer.incomplete_details, answer.metadata) == (None, None, {"run": "7"})
    assert answer.completed_at >= answer.created_at
    (message,) = answer.output
    assert (message.type, message.role, message.status) == ("message", "assistant", "completed")
    assert answer.model_extra["specmesh"]["session_id"] == "s-1"
    sent = await gateway.post(PATH, ASKED)
    Response.model_validate(sent.json())


async def test_an_answer_that_its_limit_ends_is_incomplete(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    answer = await gateway.openai.responses.create(**ASKED, max_output_tokens=12)
    assert (answer.status, answer.output[0].status) == ("incomplete", "incomplete")
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert (answer.output_text, answer.completed_at) == (TEXT, None)
    usage = answer.usage
    assert (usage.input_tokens, usage.output_tokens) == (3, len(TOKENS))
    assert usage.total_tokens == 3 + len(TOKENS)
    assert usage.input_tokens_details.cached_tokens == 0
    assert usage.output_tokens_details.reasoning_tokens == 0


async def test_every_supported_parameter_reaches_the_mesh_and_is_echoed(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    answer = await gateway.openai.responses.create(
        **ASKED,
        instructions="be brief",
        max_output_tokens=5,
        temperature=0.5,
        top_p=0.25,
        store=True,
        text={"format": {"type": "text"}, "verbosity": "medium"},
        extra_body={
            **{"seed": 11, "stop": "a", "top_k": 9, "presence_penalty": 0.5},
            "specmesh": {"strategy": "dsi", "lookahead": 3},
        },
    )
    (request,) = orchestrator.requests
    assert [(each.role, each.content) for each in request.chat.messages] == [
        ("system", "be brief"),
        ("user", "hello"),
    ]
    sampling, stopping, speculation = request.sampling, request.stopping, request.speculation
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.5, 0.25, 11)
    assert (sampling.top_k, sampling.presence_penalty) == (9, 0.5)
    assert (stopping.max_tokens, list(stopping.stop_strings)) == (5, ["a"])
    assert (speculation.strategy, speculation.lookahead) == ("dsi", 3)
    assert (answer.instructions, answer.max_output_tokens) == ("be brief", 5)
    assert (answer.temperature, answer.top_p, answer.store) == (0.5, 0.25, False)


async def test_what_is_left_out_is_left_to_the_mesh(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    answer = await gateway.openai.responses.create(**ASKED)
    (request,) = orchestrator.requests
    assert not request.stopping.ListFields()
    assert not request.sampling.ListFields()
    assert (answer.temperature, answer.top_p, answer.max_output_tokens) == (None, None, None)


async def test_a_conversation_goes_on_with_what_was_answered(gateway, orchestrator):
    orchestrator.generate_scripts = [with_logprobs, whole_answer]
    said = [
        {"role": "developer", "content": "be brief"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
    ]
    include = ["message.output_text.logprobs"]
    first = await gateway.openai.responses.create(model="toy", input=said, include=include)
    await gateway.openai.responses.create(
        model="toy", input=[*said, *first.output, {"role": "user", "content": "on"}]
    )
    assert [(each.role, each.content) for each in orchestrator.requests[1].chat.messages] == [
        ("system", "be brief"),
        ("user", "hello"),
        ("assistant", "€"),
        ("user", "on"),
    ]


async def test_a_stream_tells_how_the_response_comes_about(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    events = await events_of(gateway, ASKED)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [each for each in events if each.type == "response.output_text.delta"]
    assert [each.type for each in events] == [
        *("response.created", "response.in_progress"),
        *("response.output_item.added", "response.content_part.added"),
        *["response.output_text.delta"] * (len(TOKENS) // 2),
        *("response.output_text.done", "response.content_part.done"),
        *("response.output_item.done", "response.incomplete"),
    ]
    assert "".join(each.delta for each in deltas) == TEXT
    begun, ended = events[0].response, events[-1].response
    assert (begun.status, begun.output, begun.usage) == ("in_progress", [], None)
    assert begun.id == ended.id
    assert (ended.status, ended.output_text) == ("incomplete", TEXT)
    assert ended.usage.output_tokens == len(TOKENS)
    assert ended.model_extra["specmesh"]["strategy"] == "speculative"
    items = {each.item_id for each in events if hasattr(each, "item_id")}
    assert items == {ended.output[0].id}


async def test_openais_helper_follows_a_stream(gateway, orchestrator):
    orchestrator.generate_scripts = [stops]
    async with gateway.openai.responses.stream(**ASKED) as stream:
        texts = [each.snapshot async for each in stream if each.type.endswith("text.delta")]
        final = await stream.get_final_response()
    assert texts == ["100 101 "]
    assert (final.status, final.output_text) == ("completed", "100 101 ")


async def test_log_probabilities_come_if_they_are_included(gateway, orchestrator):
    orchestrator.generate_scripts = [with_logprobs] * 2
    asked = {**ASKED, "include": ["message.output_text.logprobs"], "top_logprobs": 1}
    answer = await gateway.openai.responses.create(**asked)
    assert orchestrator.requests[0].num_top_logprobs == 1
    half, rest, special = answer.output[0].content[0].logprobs
    assert (half.token, half.bytes, half.logprob) == ("bytes:\\xe2\\x82", [0xE2, 0x82], -0.5)
    assert (rest.token, special.token, special.bytes) == ("bytes:\\xac", "token_id:3", [])
    assert [(top.token, top.logprob) for top in half.top_logprobs] == [("x", -0.125)]
    events = await events_of(gateway, asked)
    deltas = [each for each in events if each.type == "response.output_text.delta"]
    told = [each.token for delta in deltas for each in delta.logprobs]
    assert told == ["bytes:\\xe2\\x82", "bytes:\\xac", "token_id:3"]


async def test_the_end_of_a_stream_tells_log_probabilities_again_but_describes_them_no_more(
    gateway, orchestrator, monkeypatch
):
    described = []
    describe = logprobs._with_bytes
    monkeypatch.setattr(
        logprobs, "_with_bytes", lambda token: described.append(token) or describe(token)
    )
    orchestrator.generate_scripts = [with_logprobs]
    asked = {**ASKED, "include": ["message.output_text.logprobs"], "top_logprobs": 1}
    *events, text, part, item, ended = await events_of(gateway, asked)
    told = [each for event in events if "delta" in event.type for each in event.logprobs]
    assert [each.model_dump() for each in text.logprobs] == [each.model_dump() for each in told]
    assert part.part == item.item.content[0] == ended.response.output[0].content[0]
    assert [each.model_dump() for each in part.part.logprobs] == [
        each.model_dump() for each in told
    ]
    assert len(described) == len(told) + sum(len(each.top_logprobs) for each in told)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_of_the_mesh_is_told_under_this_calls_names(gateway, orchestrator, stream):
    orchestrator.generate_scripts = [
        refuses(grpc.StatusCode.INVALID_ARGUMENT, "a system message", "CHAT_REFUSED")
    ]
    with pytest.raises(openai.BadRequestError) as raised:
        await gateway.openai.responses.create(**ASKED, stream=stream)
    assert (raised.value.code, raised.value.param) == ("chat_refused", "input")


async def test_a_stream_that_breaks_ends_with_a_failed_response_and_an_error(gateway, orchestrator):
    async def breaks(context):
        yield started()
        for event in chunks(0, 4):
            yield event
        code = grpc.StatusCode.FAILED_PRECONDITION
        async for _ in refuses(code, "replaced", "TARGET_REPLACED")(context):
            pass

    orchestrator.generate_scripts = [breaks]
    stream = await gateway.openai.responses.create(**ASKED, stream=True)
    events = []

    async def read():
        async for event in stream:
            events.append(event)  # noqa: PERF401 - what comes before the error counts

    with pytest.raises(openai.APIError, match="cannot answer at the moment"):
        await read()
    assert events[-1].type == "response.failed"
    response = events[-1].response
    assert (response.status, response.error.code) == ("failed", "server_error")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_cancels_its_response(gateway, orchestrator, stream):
    begun = asyncio.Event()

    async def noted(context):
        begun.set()
        async for event in never_ends(context):
            yield event

    orchestrator.generate_scripts = [noted]
    asked = {**ASKED, "stream": stream}
    async with connected(gateway, asked, PATH), asyncio.timeout(SOON):
        await begun.wait()
    async with asyncio.timeout(SOON):
        await orchestrator.cancelled.wait()
