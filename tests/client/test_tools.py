"""Tools by the SDK: what is asked, and what the model's message is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from specmesh.client import AsyncClient, ChatMessage, Client, SavedSession, ToolCall, ToolChoice
from specmesh.client.requests.build import chat_message
from specmesh.client.requests.chats import chat_turn
from specmesh.client.testing import FakeMesh

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"b": 2**70, "a": 1.0}}}
CALL = ToolCall("abcdefgh1", "add", '{"a": 1}')
OTHER = ToolCall("abcdefgh2", "add", "{}")
USER = {"role": "user", "content": "hello"}
OPENAI = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": CALL.id, "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    ],
}


def test_tools_are_sent_as_they_were_given():
    chat = chat_message([USER], {"tools": [TOOL, json.dumps(TOOL)]})
    assert list(chat.tools) == [json.dumps(TOOL)] * 2
    assert not chat_message([USER], {"tools": None}).tools


def test_a_choice_of_tools_makes_the_model_call_them():
    chat = chat_message([USER], {"tools": [TOOL], "tool_choice": ToolChoice(["f"], True)})
    assert (list(chat.tool_choice.names), chat.tool_choice.single_call) == (["f"], True)
    assert chat_message([USER], {"tools": [TOOL], "tool_choice": ToolChoice()}).HasField(
        "tool_choice"
    )
    assert not chat_message([USER], {"tools": [TOOL]}).HasField("tool_choice")


@pytest.mark.parametrize("bad", ["required", {"names": ["f"]}, ToolChoice("f"), ToolChoice([3])])
def test_what_is_no_choice_of_tools_is_refused(bad):
    with pytest.raises(TypeError):
        chat_message([USER], {"tools": [TOOL], "tool_choice": bad})


def test_messages_have_calls_and_results_in_openais_shape_as_well():
    ours = ChatMessage("assistant", "", tool_calls=(CALL,))
    assert chat_turn("m", ours) == chat_turn("m", OPENAI)
    as_object: Any = json.loads(json.dumps(OPENAI))
    as_object["tool_calls"][0]["function"]["arguments"] = {"a": 1}
    assert chat_turn("m", as_object) == chat_turn("m", ours)
    assert chat_turn("m", {**OPENAI, "tool_calls": [CALL]}) == chat_turn("m", ours)
    result = {"role": "tool", "content": "2", "tool_call_id": CALL.id}
    assert chat_turn("m", result) == chat_turn("m", ChatMessage("tool", "2", tool_call_id=CALL.id))
    thought = {"role": "assistant", "content": "2", "reasoning_content": "hm"}
    assert chat_turn("m", thought).reasoning_content == "hm"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "assistant", "tool_calls": []}, r"m: a message has 'role', 'content'"),
        ({"role": "assistant", "content": None}, "m.content: expected a string"),
        ({**OPENAI, "tool_calls": "add"}, "m.tool_calls: expected a sequence of calls"),
        ({**OPENAI, "tool_calls": [{}]}, r"m.tool_calls\[0\]: expected a ToolCall or a mapping"),
        (
            {**OPENAI, "tool_calls": [{"id": "a", "function": {"arguments": "{}"}}]},
            r"m.tool_calls\[0\]: 'name' must be a string, not None",
        ),
        (
            {**OPENAI, "tool_calls": [{"function": {"name": "f", "arguments": {"a": {1}}}}]},
            r"m.tool_calls\[0\].function.arguments: .* not JSON serializable",
        ),
        ({"role": "tool", "content": "2", "tool_call_id": 5}, "m.tool_call_id: expected a string"),
    ],
)
def test_a_message_that_is_none_is_named(message, expected):
    with pytest.raises(TypeError, match=expected):
        chat_turn("m", message)


def test_a_tool_that_is_none_is_named():
    for bad, said in ((5, "expected a mapping or JSON, got 5"), ({"a": {1}}, "not JSON")):
        with pytest.raises(TypeError, match=rf"tools\[1\]: .*{said}"):
            chat_message([USER], {"tools": [TOOL, bad]})


def test_the_models_message_is_there_for_the_next_turn():
    with FakeMesh() as mesh, Client(mesh.address) as client:
        mesh.answer("Well", CALL, OTHER, breaks_after=2)
        mesh.answer("It is 2")
        stream = client.chat([USER], tools=[TOOL])
        deltas = [delta for chunk in stream for delta in chunk.deltas]
        said = stream.result.message
        assert said == ChatMessage("assistant", "Well", tool_calls=(CALL, OTHER)) == stream.message
        assert [delta.tool_call.index for delta in deltas if delta.tool_call] == [0, 1]
        result = ChatMessage("tool", "2", tool_call_id=CALL.id)
        answer = client.chat([USER, said, result], tools=[TOOL]).complete()
    assert answer.message == ChatMessage("assistant", "It is 2")
    assert mesh.requests[-1].chat.messages[1].tool_calls[1].id == OTHER.id


async def test_a_saved_session_has_the_message_so_far():
    with FakeMesh() as mesh:
        mesh.answer("Well", CALL, OTHER)
        async with AsyncClient(mesh.address) as client:
            stream = client.chat([USER], tools=[TOOL])
            async for _ in stream:
                if len(stream.token_ids) == 2:
                    break
            saved = SavedSession.from_json(stream.session.to_json())
            assert saved == stream.session
            assert saved.message.tool_calls == (CALL,)
            assert (await client.resume(saved)).message.tool_calls == (CALL, OTHER)


def test_a_session_that_an_older_client_saved_has_its_text_as_content():
    saved = SavedSession("s", b"x", text="so far")
    fields = json.loads(saved.to_json())
    del fields["message"]
    assert SavedSession.from_json(json.dumps(fields)) == replace(
        saved, message=ChatMessage("assistant", "so far")
    )


def test_special_tokens_are_kept_on_request():
    with FakeMesh() as mesh, Client(mesh.address) as client:
        for keep in (True, False):
            mesh.answer("a")
            client.complete("hello", keep_special_tokens=keep)
    assert [each.keep_special_tokens for each in mesh.requests] == [True, False]
