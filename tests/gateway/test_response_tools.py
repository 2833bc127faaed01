"""Tools, calls and reasoning in POST /v1/responses."""

from __future__ import annotations

import json
from typing import Any

import grpc
import openai
import pytest
from openai.types.responses import Response
from tests.client.conftest import refuses
from tests.gateway.test_errors import field
from tests.gateway.test_responses import PATH, events_of
from tests.gateway.test_tools import CALLING, delta, says

from specmesh.v1 import events_pb2

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Wetter",
    "parameters": {"type": "object", "maximum": 12345678901234567890, "a": {}},
}
ADD = {"type": "function", "name": "add", "strict": True}
ASKED: dict[str, Any] = {"model": "toy", "input": "hello", "tools": [WEATHER, ADD]}
TOLD = [
    ("reasoning", "hm, hm"),
    ("message", "I look."),
    ("function_call", "aaaaaaaa1", "get_weather", '{"city": "Köln"}'),
    ("function_call", "aaaaaaaa2", "add", "{}"),
]


def told(output: Any) -> list[tuple[str, ...]]:
    """Return the contents of an output's items."""
    return [
        (item.type, item.call_id, item.name, item.arguments)
        if item.type == "function_call"
        else (item.type, "".join(part.text for part in item.content))
        for item in output
    ]


async def test_calls_and_reasoning_are_items_of_the_output(gateway, orchestrator):
    orchestrator.generate_scripts = [CALLING] * 2
    answer = await gateway.openai.responses.create(**ASKED)
    assert told(answer.output) == TOLD
    assert answer.usage.output_tokens_details.reasoning_tokens == 2
    assert {item.status for item in answer.output} == {"completed"}
    assert (answer.output_text, answer.status) == ("I look.", "completed")
    assert [tool.name for tool in answer.tools] == ["get_weather", "add"]
    assert (answer.tool_choice, answer.parallel_tool_calls) == ("auto", True)
    Response.model_validate((await gateway.post(PATH, ASKED)).json())


async def test_a_stream_tells_each_item_from_its_beginning_to_its_end(gateway, orchestrator):
    orchestrator.generate_scripts = [CALLING]
    events = await events_of(gateway, ASKED)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = ("output_item.added", "content_part.added")
    end = ("content_part.done", "output_item.done")
    call = "function_call_arguments"
    assert [event.type.removeprefix("response.") for event in events] == [
        *("created", "in_progress"),
        *(*text, *["reasoning_text.delta"] * 2, "reasoning_text.done", *end),
        *(*text, "output_text.delta", "output_text.done", *end),
        *("output_item.added", *[f"{call}.delta"] * 3, f"{call}.done", "output_item.done"),
        *("output_item.added", f"{call}.delta", f"{call}.done", "output_item.done"),
        "completed",
    ]
    placed = [event for event in events if hasattr(event, "output_index")]
    assert [event.output_index for event in placed] == [0] * 7 + [1] * 6 + [2] * 6 + [3] * 4
    added = [event.item for event in events if event.type == "response.output_item.added"]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.id for item in added] == [item.id for item in done]
    assert {item.status for item in added} == {"in_progress"}
    assert told(done) == told(events[-1].response.output) == TOLD
    assert events[-1].response.usage.output_tokens_details.reasoning_tokens == 2
    assert [item.id for item in done] == [item.id for item in events[-1].response.output]
    ids = {event.output_index: event.item_id for event in placed if hasattr(event, "item_id")}
    assert list(ids.values()) == [item.id for item in done]


async def test_openais_own_client_puts_a_stream_together(gateway, orchestrator):
    orchestrator.generate_scripts = [CALLING]
    tools = [{**tool, "strict": True, "parameters": {"type": "object"}} for tool in (WEATHER, ADD)]
    async with gateway.openai.responses.stream(**{**ASKED, "tools": tools}) as stream:
        whole = await stream.get_final_response()
    assert told(whole.output) == TOLD


@pytest.mark.parametrize("streams", [False, True])
async def test_what_is_not_wanted_is_left_out(gateway, orchestrator, streams):
    orchestrator.generate_scripts = [CALLING]
    asked = {**ASKED, "parallel_tool_calls": False, "include_reasoning": False}
    if streams:
        output = (await events_of(gateway, asked))[-1].response.output
    else:
        output = Response.model_validate((await gateway.post(PATH, asked)).json()).output
    assert told(output) == TOLD[1:3]


@pytest.mark.parametrize("streams", [False, True])
async def test_a_call_that_was_cut_off_is_incomplete(gateway, orchestrator, streams):
    calls = [
        [delta(tool_call={"index": n, "id": f"c{n}", "name": "add", "arguments": '{"a'})]
        for n in (0, 1)
    ]
    orchestrator.generate_scripts = [says(*calls, reason=events_pb2.FINISH_REASON_LENGTH)]
    if streams:
        answer = (await events_of(gateway, ASKED))[-1].response
    else:
        answer = await gateway.openai.responses.create(**ASKED)
    assert [item.status for item in answer.output] == ["completed", "incomplete"]
    assert answer.status == "incomplete"


async def test_text_behind_a_call_is_another_message_of_a_stream(gateway, orchestrator):
    call = [delta(tool_call={"id": "c", "name": "add", "arguments": "{}"})]
    orchestrator.generate_scripts = [says([delta(content="a ")], call, [delta(content="b")])]
    events = await events_of(gateway, ASKED)
    output = events[-1].response.output
    assert told(output) == [
        ("message", "a "),
        ("function_call", "c", "add", "{}"),
        ("message", "b"),
    ]


@pytest.mark.parametrize(
    ("choice", "names", "single"),
    [
        ("auto", None, False),
        ("required", [], False),
        ({"type": "function", "name": "add"}, ["add"], True),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{**ADD, "strict": None}]},
            ["add"],
            False,
        ),
    ],
    ids=str,
)
async def test_tools_and_their_choice_reach_the_mesh(gateway, orchestrator, choice, names, single):
    orchestrator.generate_scripts = [CALLING]
    if isinstance(choice, dict) and "tools" in choice:
        choice = {**choice, "tools": [{"type": "function", "name": "add"}]}
    answer = await gateway.openai.responses.create(**ASKED, tool_choice=choice)
    (request,) = orchestrator.requests
    function = {name: value for name, value in WEATHER.items() if name != "type"}
    assert [json.loads(tool) for tool in request.chat.tools] == [
        {"type": "function", "function": function},
        {"type": "function", "function": {"name": "add", "strict": True}},
    ]
    forced = request.chat.tool_choice
    assert request.chat.HasField("tool_choice") is (names is not None)
    assert (list(forced.names), forced.single_call) == (names or [], single)
    shown = answer.tool_choice
    assert (shown if isinstance(shown, str) else shown.model_dump()) == choice


async def test_calls_and_their_results_go_back_as_messages(gateway, orchestrator):
    orchestrator.generate_scripts = [CALLING] * 2
    first = await gateway.openai.responses.create(**ASKED)
    results = [
        {"type": "function_call_output", "call_id": "aaaaaaaa1", "output": "21"},
        {
            "type": "function_call_output",
            "call_id": "aaaaaaaa2",
            "output": [{"type": "input_text", "text": "0"}],
        },
    ]
    said = [{"role": "user", "content": "hello"}, *first.output, *results]
    await gateway.openai.responses.create(**{**ASKED, "input": said})
    user, model, *tools = orchestrator.requests[1].chat.messages
    assert (user.role, user.content) == ("user", "hello")
    assert (model.role, model.content, model.reasoning_content) == (
        *("assistant", "I look."),
        "hm, hm",
    )
    assert [(call.id, call.name, call.arguments) for call in model.tool_calls] == [
        each[1:] for each in TOLD[2:]
    ]
    assert [(tool.role, tool.tool_call_id, tool.content) for tool in tools] == [
        ("tool", "aaaaaaaa1", "21"),
        ("tool", "aaaaaaaa2", "0"),
    ]


async def test_calls_alone_are_a_message_too(gateway, orchestrator):
    orchestrator.generate_scripts = [CALLING]
    call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "0"}
    given = [call, {**call, "call_id": "d"}, result, {"type": "reasoning", "summary": []}, call]
    await gateway.openai.responses.create(**{**ASKED, "input": given})
    (request,) = orchestrator.requests
    assert [(each.role, len(each.tool_calls)) for each in request.chat.messages] == [
        ("assistant", 2),
        ("tool", 0),
        ("assistant", 1),
    ]


@pytest.mark.parametrize(
    ("told_by_mesh", "param"),
    [
        ("chat.tools[1].function.parameters", "tools[1].parameters"),
        ("chat.tool_choice.names[0]", "tool_choice"),
        ("sampling.grammar.ebnf", "tool_choice"),
    ],
)
async def test_what_is_wrong_with_tools_is_told_by_its_name_here(
    gateway, orchestrator, told_by_mesh, param
):
    wrong = field(told_by_mesh)
    orchestrator.generate_scripts = [refuses(grpc.StatusCode.INVALID_ARGUMENT, "no", "", wrong)]
    with pytest.raises(openai.BadRequestError) as refused:
        await gateway.openai.responses.create(**ASKED, tool_choice="required")
    assert refused.value.param == param
