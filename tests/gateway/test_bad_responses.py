"""What POST /v1/responses can't answer is refused by its name."""

from __future__ import annotations

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.conftest import refuses
from tests.gateway.test_bad_input import JSON, assert_refused_by_name
from tests.gateway.test_errors import field
from tests.gateway.test_responses import PATH

from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.parameters.responses import RESPONSES
from specmesh.gateway.requests.responses import responses_request

ASKED = {"model": "toy", "input": "hello"}

TOOL = {"type": "function", "name": "f"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "x"}
ANY_OBJECT = {"type": "json_object"}


def said(**change):
    return {"input": [{"role": "user", "content": "hello"} | change]}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": None}, "model"),
        ({"input": None}, "input"),
        ({"input": 3}, "input"),
        ({"input": []}, "input"),
        ({"input": ["hello"]}, "input[0]"),
        (said(content=None), "input[0].content"),
        (said(role="tool"), "input[0].role"),
        (said(other=1), "input[0].other"),
        (said(content=[{"type": "input_image", "image_url": "x"}]), "input[0].content[0]"),
        (said(content=[{"type": "input_text", "text": 3}]), "input[0].content[0].text"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output"),
        ({"input": [RESULT | {"output": [{"type": "input_image"}]}]}, "input[0].output[0]"),
        ({"input": [CALL | {"name": None}]}, "input[0].name"),
        ({"input": [CALL | {"arguments": {}}]}, "input[0].arguments"),
        ({"input": [CALL | {"namespace": "a"}]}, "input[0].namespace"),
        ({"input": [{"type": "reasoning", "content": "hm"}]}, "input[0].content"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"instructions": ["be brief"]}, "instructions"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"max_output_tokens": "5"}, "max_output_tokens"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"n": 2}, "n"),
        ({"temperature": "hot"}, "temperature"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [TOOL | {"parameters": "x"}]}, "tools[0].parameters"),
        ({"tools": [TOOL | {"function": {"name": "f"}}]}, "tools[0].function"),
        ({"tools": [TOOL] * 129}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
        (
            {"tools": [TOOL], "tool_choice": "required", "text": {"format": ANY_OBJECT}},
            "tool_choice",
        ),
        ({"reasoning": {"effort": "high"}}, "reasoning"),
        ({"truncation": "auto"}, "truncation"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        (
            {"text": {"format": {"type": "json_object"}}, "structured_outputs": {"regex": "a"}},
            "structured_outputs",
        ),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"include": ["everything"]}, "include[0]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options"),
        ({"specmesh": {"other": 3}}, "specmesh.other"),
    ],
)
def test_a_wrong_field_of_responses_is_named(change, param):
    with pytest.raises(ApiError) as raised:
        responses_request({**ASKED, **change})
    assert (raised.value.status, raised.value.param) == (400, param)
    assert "instance of" not in raised.value.message  # of a class that is ours


USER = {"role": "user", "content": "hello"}
THOUGHT = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}
SPOKEN = [USER, THOUGHT, {"role": "assistant", "content": "a"}, CALL, CALL, RESULT, CALL]
NOTHING = {"type": "reasoning", "summary": []}


@pytest.mark.parametrize(
    ("asked", "told", "param"),
    [
        ({"input": "hello"}, "messages[0].content", "input"),
        ({"input": "hello", "instructions": "b"}, "messages[0].content", "instructions"),
        ({"input": "hello", "instructions": "b"}, "messages[1]", "input"),
        ({"input": [USER]}, "messages[0].role", "input[0].role"),
        ({"input": [USER], "instructions": "b"}, "messages[1].content", "input[0].content"),
        ({"input": SPOKEN}, "messages", "input"),
        ({"input": SPOKEN}, "messages[1].reasoning_content", "input[1].content"),
        ({"input": SPOKEN}, "messages[1].content", "input[2].content"),
        ({"input": SPOKEN}, "messages[1].tool_calls[1].arguments", "input[4].arguments"),
        ({"input": SPOKEN}, "messages[1].tool_calls[0]", "input[3]"),
        ({"input": SPOKEN}, "messages[2].content", "input[5].output"),
        ({"input": SPOKEN}, "messages[2].tool_call_id", "input[5].call_id"),
        ({"input": SPOKEN}, "messages[3].tool_calls[0].name", "input[6].name"),
        ({"input": [NOTHING, USER, USER]}, "messages[1].content", "input[2].content"),
        ({"input": [CALL] * 130}, "messages[1].tool_calls[1].name", "input[129].name"),
    ],
    ids=str,
)
async def test_what_the_mesh_refuses_in_a_message_is_named_by_its_item(
    gateway, orchestrator, asked, told, param
):
    wrong = field(f"chat.{told}")
    orchestrator.generate_scripts = [refuses(grpc.StatusCode.INVALID_ARGUMENT, "no", "", wrong)]
    error = (await gateway.post(PATH, {**ASKED, **asked})).json()["error"]
    assert (error["param"], error["message"]) == (param, f"{param!r}: no")


async def test_what_a_template_omits_is_named_by_its_item(gateway, orchestrator):
    words = "it omits the calls of tools in chat.messages[1]"
    script = refuses(grpc.StatusCode.INVALID_ARGUMENT, words, "CHAT_REFUSED")
    orchestrator.generate_scripts = [script] * 2
    error = (await gateway.post(PATH, {**ASKED, "input": [NOTHING, USER, CALL]})).json()["error"]
    assert error["param"] == "input"
    assert "tools in input[2]" in error["message"]
    chat = {"model": "toy", "messages": [USER, USER]}
    error = (await gateway.post("/v1/chat/completions", chat)).json()["error"]
    assert "tools in messages[1]" in error["message"]


def test_items_and_instructions_that_are_too_many_together_are_named_here():
    with pytest.raises(ApiError) as raised:
        responses_request({**ASKED, "input": [USER] * 4096, "instructions": "b"})
    assert raised.value.param == "input"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("messages", "'input'"),
        ("max_tokens", "'max_output_tokens'"),
        ("previous_response_id", "'input'"),
        ("lookahead", "'specmesh.lookahead'"),
    ],
)
def test_a_name_of_another_call_is_told_what_means_the_same_here(name, hint):
    with pytest.raises(ApiError, match=f"use {hint}"):
        responses_request({**ASKED, name: 5})


@pytest.mark.parametrize(
    "neutral",
    [
        {"tools": []},
        {"tool_choice": "auto", "parallel_tool_calls": True},
        {"reasoning": {"effort": None}},
        {"background": False},
        {"truncation": "disabled"},
        {"service_tier": "auto"},
        {"text": {"format": {"type": "text"}}},
        {"include": ["reasoning.encrypted_content"]},
        {"previous_response_id": None, "instructions": None, "max_output_tokens": None},
        {"best_of": 1, "use_beam_search": False},
    ],
    ids=str,
)
def test_a_neutral_value_asks_for_the_same_chat(neutral):
    assert responses_request({**ASKED, **neutral}).chat == responses_request(ASKED).chat


@given(name=st.sampled_from([*RESPONSES, "specmesh", "other"]), value=JSON)
def test_no_value_of_a_field_of_responses_is_more_than_a_bad_request(name, value):
    assert_refused_by_name(responses_request, {**ASKED, "stream": True, name: value})


@given(
    messages=JSON
    | st.lists(
        st.dictionaries(st.sampled_from(["role", "content", "type", "id", "x"]), JSON), max_size=3
    )
)
def test_no_input_is_more_than_a_bad_request(messages):
    assert_refused_by_name(responses_request, {"model": "toy", "input": messages})
