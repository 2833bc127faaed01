"""Chats with tools become the prompts that transformers makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jinja2 import TemplateError
from tests.inference.test_chat_templates import EXAMPLE, tokenizer_with
from tests.orchestrator.tool_templates import (
    DEEPSEEK,
    HERMES,
    LLAMA3,
    MISTRAL,
    QWEN3_CODER,
    THINKING,
)

from specmesh.client.requests.build import chat_message
from specmesh.orchestrator.chats.call_shapes import with_calls_readable
from specmesh.orchestrator.chats.chat import said_in, variables
from specmesh.orchestrator.chats.sandbox import _answer
from specmesh.orchestrator.chats.shapes import WordsLost
from specmesh.serving.templates.template_language import render

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Wetter für <eine> Stadt & mehr",
            "parameters": {
                "type": "object",
                "required": ["city"],
                "properties": {
                    "city": {"type": "string", "enum": ["Köln", "東京"]},
                    "at": {"type": "integer", "maximum": 12345678901234567890, "default": 1.0},
                },
            },
        },
    },
    {"type": "function", "function": {"name": "add", "parameters": {"b": {}, "a": {}}}},
]
USER = {"role": "user", "content": "Wetter in Köln?"}


def calling(
    *calls: tuple[str, dict[str, Any] | str], content: str = "", **more: Any
) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {
                "id": f"abcdefgh{number}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for number, (name, arguments) in enumerate(calls)
        ],
        **more,
    }


def result(content: str, number: int = 0) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": f"abcdefgh{number}"}


ONE = calling(("get_weather", {"city": "Köln", "at": 12345678901234567890, "b": [1.0, None]}))
TALKS = {
    "a question": [USER],
    "a call": [USER, ONE],
    "a result": [{"role": "system", "content": "Be brief."}, USER, ONE, result('{"C": 21}')],
    "an answer": [USER, ONE, result("21"), {"role": "assistant", "content": "21 °C"}, USER],
    "several calls": [
        *(USER, calling(("add", {"b": 1, "a": {}}), ("add", {}))),
        *(result("1"), result("2", 1)),
    ],
    "words beside a call": [USER, calling(("add", {}), content="Let me see."), result("0")],
    "reasoning": [USER, calling(("add", {}), reasoning_content="hm"), result("0"), USER],
    "a mistake": [USER, calling(("add", '{"b": 1, "a'), ("add", {"b": 1})), result("no JSON")],
}
TEMPLATES = {
    "example": EXAMPLE.read_text(),
    "hermes": HERMES,
    "thinking": THINKING,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
}


def ours(source: str, messages: list[dict[str, Any]], tools: Any, special: dict[str, str]) -> Any:
    """Return the sandbox's rendering of the chat that the SDK sends."""
    chat = chat_message(messages, {"tools": tools})
    given = variables(chat, said_in(chat), special)
    return _answer(source, given, 1 << 20, ["tools"] if tools else [])


@pytest.mark.parametrize("tools", [TOOLS, None], ids=["tools", "no tools"])
@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
def test_text_is_that_of_transformers(source, talk, tools):
    tokenizer = tokenizer_with(source)
    answer = ours(source, TALKS[talk], tools, tokenizer.special_tokens_map)
    try:
        expected = tokenizer.apply_chat_template(
            TALKS[talk], tools=tools, tokenize=False, add_generation_prompt=True
        )
    except TemplateError as error:
        made = {"refused": str(error)}
    else:
        made = {"text": expected}
    assert answer == made


def test_calls_are_null_and_text_where_the_template_wants_that():
    messages = [USER, calling(("add", {"b": 1, "ä": "x"})), result("1")]
    as_deepseek = [messages[0], json.loads(json.dumps(messages[1])), messages[2]]
    as_deepseek[1]["content"] = None
    as_deepseek[1]["tool_calls"][0]["function"]["arguments"] = '{"b": 1, "ä": "x"}'
    expected = render(DEEPSEEK, {"messages": as_deepseek, "tools": TOOLS}, 1 << 20)
    assert ours(DEEPSEEK, messages, TOOLS, {}) == {"text": expected}


MISTAKES = ['{"a": ', "null", "[1]", '"x"', "5", "add(1)", '{"a": NaN}', "[" * 1000]


@pytest.mark.parametrize("written", MISTAKES)
def test_arguments_that_are_no_object_are_the_text_that_they_are(written):
    messages = [USER, calling(("add", written), ("add", {"b": 1})), result("no JSON")]
    for source, expected in ((HERMES, json.dumps(written)), (DEEPSEEK, written)):
        text = ours(source, messages, TOOLS, {})["text"]
        assert expected in text
        assert '{"b": 1}' in text


@pytest.mark.parametrize("written", MISTAKES)
def test_a_template_that_writes_arguments_one_by_one_gets_those_that_are_no_object_as_one(written):
    messages = [USER, calling(("add", written), ("add", {"b": 1}))]
    text = ours(QWEN3_CODER, messages, TOOLS, {})["text"]
    assert f"<parameter=arguments>\n{written}\n</parameter>" in text
    assert "<parameter=b>\n1\n</parameter>" in text


PLAIN = "{% for message in messages %}{{ message.content }}\n{% endfor %}"


@pytest.mark.parametrize(
    ("source", "messages", "tools", "said"),
    [
        (PLAIN, [USER, ONE, result("x")], None, "it omits the calls of tools in chat.messages[1]"),
        (
            HERMES.replace("tool'", "nobody'"),
            [USER, ONE, result("x")],
            TOOLS,
            "it omits the content of chat.messages[2], whose role is 'tool'",
        ),
        (MISTRAL, [USER, calling(("add", {})), {**result("x"), "content": ""}], None, None),
    ],
    ids=["calls", "results", "nothing"],
)
def test_a_template_that_omits_what_is_said_refuses_the_chat(source, messages, tools, said):
    answer = ours(source, messages, tools, {"bos_token": "<s>", "eos_token": "</s>"})
    assert answer.get("refused") == said


def test_a_template_that_ignores_tools_is_found_to():
    assert ours(PLAIN, [USER], TOOLS, {}) == {"ignored": "tools"}


def test_a_template_that_writes_python_in_place_of_json_gets_text():
    source = (
        "{% for message in messages %}{% for call in message.tool_calls %}"
        "{{ call.function.name }} {{ call.function.arguments }}{% endfor %}{% endfor %}"
    )
    assert ours(source, [calling(("add", {"a": "ü"}))], None, {}) == {"text": 'add {"a": "ü"}'}


def test_a_message_that_reads_its_content_in_parts_may_call_tools():
    source = (
        "{% for message in messages %}"
        "{% for part in message.content %}{{ part['text'] }}{% endfor %}"
        "{% for call in message.tool_calls %}[{{ call.function | tojson }}]{% endfor %}{% endfor %}"
    )
    messages = [USER, calling(("add", {}), content="well ")]
    expected = 'Wetter in Köln?well [{"name": "add", "arguments": {}}]'
    assert ours(source, messages, None, {}) == {"text": expected}


def test_a_template_that_refuses_all_is_left_to_say_so():
    def refusing(messages: Any) -> str:
        return render("{{ raise_exception('no') }}", {"messages": messages}, 1 << 20)

    messages = [calling(("add", {}))]
    assert with_calls_readable(messages, refusing) is messages


def test_a_chat_that_is_too_long_is_not_taken_for_one_whose_tools_are_ignored():
    source = "{{ messages[0].content }}{{ tools | tojson }}"
    given = variables(chat := chat_message([USER], {"tools": TOOLS}), said_in(chat), {})
    assert _answer(source, given, 8, ["tools"]) == {"text": USER["content"]}


def test_calls_that_are_lost_are_named():
    with pytest.raises(WordsLost, match=r"calls of tools in chat\.messages\[1\]"):
        with_calls_readable([USER, ONE], lambda messages: str(messages[0]))
