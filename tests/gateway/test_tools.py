"""Tools, calls and reasoning in POST /v1/chat/completions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import openai
import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from tests.client.conftest import refuses, whole_answer
from tests.gateway.test_errors import field as field_of

from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.chats import chat_request
from specmesh.v1 import events_pb2

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "maximum": 12345678901234567890, "a": {}},
            "description": "Wetter",
        },
    }
]
ASKED: dict[str, Any] = {"model": "toy", "messages": [{"role": "user", "content": "hello"}]}
CALLS = [
    {"id": "aaaaaaaa1", "function": {"name": "get_weather", "arguments": '{"city": "Köln"}'}},
    {"id": "aaaaaaaa2", "function": {"name": "add", "arguments": "{}"}},
]


def delta(**fields: Any) -> events_pb2.MessageDelta:
    if "tool_call" in fields:
        fields["tool_call"] = events_pb2.ToolCallDelta(**fields["tool_call"])
    return events_pb2.MessageDelta(**fields)


def says(
    *chunks: list[events_pb2.MessageDelta],
    reason: int = events_pb2.FINISH_REASON_END_OF_TEXT,
    end: tuple[events_pb2.MessageDelta, ...] = (),
    **stats: int,
) -> Any:
    """An answer that the mesh has parsed, of a token for each chunk."""

    async def script(_: object) -> AsyncIterator[events_pb2.GenerationEvent]:
        began = events_pb2.GenerationStarted(session_id="s-1", model="toy", has_deltas=True)
        yield events_pb2.GenerationEvent(started=began)
        for index, deltas in enumerate(chunks):
            chunk = events_pb2.GenerationChunk(
                first_index=index, token_ids=[index], text="raw", deltas=deltas
            )
            yield events_pb2.GenerationEvent(chunk=chunk)
        yield events_pb2.GenerationEvent(
            finished=events_pb2.GenerationFinished(finish_reason=reason, deltas=end, stats=stats)
        )

    return script


CALLING = says(
    [delta(reasoning_content="hm, ")],
    [delta(reasoning_content="hm"), delta(content="I look.")],
    [],
    [delta(tool_call={"index": 0, "id": "aaaaaaaa1", "name": "get_weather", "arguments": '{"ci'})],
    [delta(tool_call={"index": 0, "arguments": 'ty": "K'})],
    [
        delta(tool_call={"index": 0, "arguments": 'öln"}'}),
        delta(tool_call={"index": 1, "id": "aaaaaaaa2", "name": "add"}),
    ],
    end=(delta(tool_call={"index": 1, "arguments": "{}"}),),
    num_output_tokens=6,
    num_reasoning_tokens=2,
)


def dumped(calls: Any) -> list[dict[str, Any]]:
    return [{"id": each.id, "function": each.function.model_dump()} for each in calls]


async def test_calls_and_reasoning_are_parts_of_the_message(gateway, orchestrator):
    orchestrator.generate_scripts = [CALLING]
    answer = await gateway.openai.chat.completions.create(**ASKED, tools=TOOLS)
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look."
    assert choice.message.model_extra == {"reasoning_content": "hm, hm"}
    assert dumped(choice.message.tool_calls) == CALLS
    assert {each.type for each in choice.message.tool_calls} == {"function"}


async def test_a_message_of_calls_alone_has_no_content(gateway, orchestrator):
    call = delta(tool_call={"id": "aaaaaaaa1", "name": "add", "arguments": "{}"})
    orchestrator.generate_scripts = [says([call])]
    answer = await gateway.openai.chat.completions.create(**ASKED, tools=TOOLS)
    assert answer.choices[0].message.content is None


async def test_a_stream_brings_a_name_first_and_then_pieces_of_arguments(gateway, orchestrator):
    orchestrator.generate_scripts = [CALLING]
    first, *parts, last, done = await gateway.events(
        "/v1/chat/completions", {**ASKED, "tools": TOOLS}
    )
    assert (first["choices"][0]["delta"]["role"], done) == ("assistant", None)
    assert [part["choices"][0]["delta"] for part in parts] == [
        {"reasoning_content": "hm, "},
        {"content": "I look.", "reasoning_content": "hm"},
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "aaaaaaaa1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"ci'},
                }
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": 'ty": "K'}}]},
        {
            "tool_calls": [
                {"index": 0, "function": {"arguments": 'öln"}'}},
                {
                    "index": 1,
                    "id": "aaaaaaaa2",
                    "type": "function",
                    "function": {"name": "add", "arguments": ""},
                },
            ]
        },
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
    ]
    assert last["choices"][0]["finish_reason"] == "tool_calls"
    assert last["choices"][0]["delta"] == {}


async def test_openais_own_client_puts_a_stream_together(gateway, orchestrator):
    orchestrator.generate_scripts = [CALLING]
    async with gateway.openai.chat.completions.stream(
        **ASKED, tools=TOOLS, extra_body={"include_reasoning": False}
    ) as stream:
        whole = await stream.get_final_completion()
    (choice,) = whole.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I look.")
    assert dumped(choice.message.tool_calls) == [
        {"id": call["id"], "function": {**call["function"], "parsed_arguments": None}}
        for call in CALLS
    ]
    assert "reasoning_content" not in choice.message.model_extra


@pytest.mark.parametrize("streams", [False, True])
async def test_only_the_first_call_is_told_unless_several_may_be(gateway, orchestrator, streams):
    orchestrator.generate_scripts = [CALLING]
    asked = {**ASKED, "tools": TOOLS, "parallel_tool_calls": False}
    if streams:
        events = await gateway.events("/v1/chat/completions", asked)
        parts = [event["choices"][0]["delta"] for event in events if event]
        calls = [call for part in parts for call in part.get("tool_calls", ())]
        assert {call["index"] for call in calls} == {0}
    else:
        answer = await gateway.openai.chat.completions.create(**asked)
        assert dumped(answer.choices[0].message.tool_calls) == CALLS[:1]


async def test_an_answer_that_was_cut_off_says_so_even_within_a_call(gateway, orchestrator):
    call = delta(tool_call={"id": "aaaaaaaa1", "name": "add", "arguments": '{"a'})
    orchestrator.generate_scripts = [says([call], reason=events_pb2.FINISH_REASON_LENGTH)]
    answer = await gateway.openai.chat.completions.create(**ASKED, tools=TOOLS)
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.tool_calls[0].function.arguments == '{"a'


async def test_reasoning_is_left_out_on_request(gateway, orchestrator):
    orchestrator.generate_scripts = [CALLING]
    answer = await gateway.openai.chat.completions.create(
        **ASKED, tools=TOOLS, extra_body={"include_reasoning": False}
    )
    assert answer.choices[0].message.model_extra == {}


async def test_tokens_of_reasoning_are_counted_in_the_usage(gateway, orchestrator):
    orchestrator.generate_scripts = [CALLING] * 4
    whole = await gateway.openai.chat.completions.create(**ASKED, n=2)
    streamed = {**ASKED, "n": 2, "stream_options": {"include_usage": True}}
    *_, last, _ = await gateway.events("/v1/chat/completions", streamed)
    assert whole.usage.completion_tokens_details.reasoning_tokens == 4
    assert last["usage"]["completion_tokens_details"] == {"reasoning_tokens": 4}


async def test_tools_reach_the_mesh_as_they_were_given(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 3
    loose, strict = (
        [{"type": "function", "function": {**TOOLS[0]["function"], "strict": each}}]
        for each in (False, True)
    )
    for choice, tools in (("auto", loose), ("none", TOOLS), (None, strict)):
        await gateway.openai.chat.completions.create(**ASKED, tools=tools, tool_choice=choice)
    auto, none, default = (request.chat.tools for request in orchestrator.requests)
    assert auto == [json.dumps(tool, ensure_ascii=False) for tool in TOOLS]
    assert default == [json.dumps(tool, ensure_ascii=False) for tool in strict]
    assert none == []


async def test_what_strict_tools_lack_is_told_under_their_name(gateway, orchestrator):
    lacking = ErrorInfo(
        domain="specmesh.dev", reason="UNSUPPORTED_FEATURE", metadata={"feature": "GRAMMARS"}
    )
    orchestrator.generate_scripts = [
        refuses(grpc.StatusCode.FAILED_PRECONDITION, "lacks", "", lacking)
    ]
    response = await gateway.post("/v1/chat/completions", {**ASKED, "tools": TOOLS})
    assert response.json()["error"]["param"] == "tools"


async def test_calls_and_results_reach_the_mesh_as_messages(gateway, orchestrator):
    orchestrator.generate_scripts = [CALLING, whole_answer]
    answer = await gateway.openai.chat.completions.create(**ASKED, tools=TOOLS)
    said = answer.choices[0].message
    await gateway.openai.chat.completions.create(
        model="toy",
        messages=[
            *ASKED["messages"],
            said.model_dump(),
            {"role": "tool", "content": "21", "tool_call_id": CALLS[0]["id"]},
            {"role": "tool", "content": [{"type": "text", "text": "0"}], "tool_call_id": "b"},
            {"role": "assistant", "content": None, "tool_calls": said.model_dump()["tool_calls"]},
        ],
        tools=TOOLS,
    )
    _, called, result, other, silent = orchestrator.requests[1].chat.messages
    told = [
        {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
        for call in called.tool_calls
    ]
    assert (called.role, called.content, called.reasoning_content, told) == (
        *("assistant", "I look.", "hm, hm"),
        CALLS,
    )
    assert (result.role, result.content, result.tool_call_id) == ("tool", "21", "aaaaaaaa1")
    assert (other.content, other.tool_call_id) == ("0", "b")
    assert (silent.content, len(silent.tool_calls)) == ("", 2)


ADD = {"type": "function", "function": {"name": "add"}}
BOTH = [*TOOLS, ADD]


def allowed(mode: str, *tools: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [*tools]}}


@pytest.mark.parametrize(
    ("asked", "names", "single"),
    [
        ({"tool_choice": "required"}, [], False),
        ({"tool_choice": "required", "parallel_tool_calls": False}, [], True),
        ({"tool_choice": ADD}, ["add"], True),
        ({"tool_choice": allowed("required", ADD)}, ["add"], False),
    ],
    ids=str,
)
async def test_a_choice_that_forces_a_call_reaches_the_mesh(
    gateway, orchestrator, asked, names, single
):
    orchestrator.generate_scripts = [CALLING]
    await gateway.openai.chat.completions.create(**ASKED, tools=BOTH, **asked)
    (request,) = orchestrator.requests
    assert len(request.chat.tools) == 2
    choice = request.chat.tool_choice
    assert (list(choice.names), choice.single_call) == (names, single)


async def test_a_model_is_shown_the_tools_that_it_may_call(gateway, orchestrator):
    orchestrator.generate_scripts = [CALLING]
    choice = allowed("auto", ADD)
    await gateway.openai.chat.completions.create(**ASKED, tools=BOTH, tool_choice=choice)
    (request,) = orchestrator.requests
    assert [json.loads(tool)["function"]["name"] for tool in request.chat.tools] == ["add"]
    assert not request.chat.HasField("tool_choice")


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [], "tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "sub"}}},
        {"tool_choice": allowed("auto", {"type": "function", "function": {"name": "sub"}})},
        {"tool_choice": ADD, "response_format": {"type": "json_object"}},
        {"tool_choice": "required", "structured_outputs": {"regex": "a"}},
    ],
    ids=str,
)
def test_a_choice_that_can_not_be_is_refused_by_its_name(more):
    with pytest.raises(ApiError, match="'tool_choice'") as refused:
        chat_request({**ASKED, "tools": BOTH, **more})
    assert refused.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("field", "param"),
    [
        ("chat.tools[1].function.parameters", "tools[1].function.parameters"),
        ("chat.tool_choice.names[0]", "tool_choice"),
        ("chat.tool_choice", "tool_choice"),
        ("sampling.grammar.ebnf", "tool_choice"),
    ],
)
async def test_what_is_wrong_with_forced_calls_names_the_parameter(
    gateway, orchestrator, field, param
):
    wrong = field_of(field)
    orchestrator.generate_scripts = [refuses(grpc.StatusCode.INVALID_ARGUMENT, "no", "", wrong)]
    with pytest.raises(openai.BadRequestError) as refused:
        await gateway.openai.chat.completions.create(**ASKED, tools=BOTH, tool_choice="required")
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("reason", "metadata", "param"),
    [
        ("NO_TOOL_FORMAT", {}, "tools"),
        ("CHAT_REFUSED", {}, "messages"),
        ("CHAT_REFUSED", {"ignored": "tools"}, "tools"),
    ],
)
async def test_what_the_mesh_refuses_names_the_parameter(
    gateway, orchestrator, reason, metadata, param
):
    info = ErrorInfo(reason=reason, domain="specmesh.dev", metadata=metadata)
    script = refuses(grpc.StatusCode.FAILED_PRECONDITION, "no", "", info)
    orchestrator.generate_scripts = [script]
    with pytest.raises(openai.BadRequestError) as refused:
        await gateway.openai.chat.completions.create(**ASKED, tools=TOOLS)
    assert (refused.value.param, refused.value.code) == (param, reason.lower())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_special_tokens_are_kept_on_request(gateway, orchestrator, path):
    orchestrator.generate_scripts = [whole_answer] * 2
    asked = ASKED if "chat" in path else {"model": "toy", "prompt": "hello"}
    for skip in (True, False):
        response = await gateway.post(path, {**asked, "skip_special_tokens": skip})
        assert response.status_code == 200
    assert [each.keep_special_tokens for each in orchestrator.requests] == [False, True]
