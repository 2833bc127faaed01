"""Strict tools: the text of an answer is free, and a call that begins in it is a valid one."""

from __future__ import annotations

import json
from functools import cache

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.orchestrator.parsing.answers import message, parsed
from tests.orchestrator.parsing.test_call_grammars import MARKS, SCHEMAS, TYPES, WRITTEN, target
from tests.orchestrator.parsing.test_call_grammars import fits as fits_grammar
from tests.orchestrator.parsing.test_call_grammars import grammar_of as text_of
from tests.tool_model import SPECIAL

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import Grammar
from specmesh.orchestrator.parsing.answer_parser import AnswerStyle
from specmesh.orchestrator.parsing.reasoning import REASONING_FORMATS
from specmesh.orchestrator.parsing.registry import tool_formats
from specmesh.orchestrator.requests.forced_calls import read_forced
from specmesh.v1 import chat_pb2

STRICT = ("get_weather", "add-2")
FORMATS = tuple(name for name, each in tool_formats().items() if each.begins)
FREE = '{"loose": [1], "any": null}'
LOOSE = {
    "hermes": f'<tool_call>{{"name": "loose", "arguments": {FREE}}}</tool_call>',
    "mistral": f"[TOOL_CALLS]loose{FREE}",
    "qwen3_coder": "<tool_call>\n<function=loose>\n<parameter=x>\ny\n</parameter>\n</function>\n"
    "</tool_call>",
    "glm45": "<tool_call>loose<arg_key>x</arg_key><arg_value>y</arg_value></tool_call>",
    "deepseek_v3": f"<｜tool▁call▁begin｜>loose<｜tool▁sep｜>{FREE}<｜tool▁call▁end｜>",
}


def tools() -> list[str]:
    schemas = {**{name: SCHEMAS[name] for name in STRICT}, "loose": SCHEMAS["get_weather"]}
    return [
        json.dumps(
            {
                "type": "function",
                "function": {"name": name, "parameters": schema, "strict": name in STRICT},
            }
        )
        for name, schema in schemas.items()
    ]


def style(name: str, reasoning: str = "") -> AnswerStyle:
    types = {**{each: TYPES[each] for each in STRICT}, "loose": {}}
    return AnswerStyle(tool_formats()[name], REASONING_FORMATS.get(reasoning), types)


@cache
def grammar(name: str, special: bool, prompt: str = "", reasoning: str = "") -> Grammar:
    calls = read_forced(
        chat_pb2.Chat(tools=tools()), style(name, reasoning), prompt, target(special)
    )
    return text_of(calls)


def first(name: str) -> str:
    return WRITTEN[name][0]


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_text_is_free_and_calls_are_valid(name, special):
    held, call = grammar(name, special), first(name)
    begin = tool_formats()[name].begins[0]
    for text in (
        "",
        "Hello!\n\n",
        "5 < 6 <tool_cal <｜tool▁call [TOOL_CAL",
        '{"name": "add-2"}',
        "é😀",
    ):
        assert fits_grammar(held, special, text), text
    for text in (
        call,
        f"I look.\n{call}",
        f"{call}\n{call} So.\n{call}",
        f"{call} then",
        LOOSE[name],
    ):
        assert fits_grammar(held, special, text), text
    for text in (
        begin, f"a {begin} b", f"{call}{begin}", call.replace("Köln", "Bonn"),
        call.replace("get_weather", "unknown"), f"{call} {call.replace('Köln', 'Bonn')}",
    ):  # fmt: skip
        assert not fits_grammar(held, special, text), text


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_a_model_reasons_as_it_likes(name, special):
    begin, call = tool_formats()[name].begins[0], first(name)
    if special and begin in {*MARKS, *SPECIAL}:
        begin = "<tool"  # reasoning has no special tokens
    thought = f"I could {begin} hm</think>\n\n"
    held = grammar(name, special, reasoning="think")
    for text in (
        *(f"<think>{thought}{call}", f"<think>{thought}Hello {call}", call, "Hello", ""),
        *("<think>", "<think>hm </thi", f"<think>I could {begin}"),
    ):
        assert fits_grammar(held, special, text), text
    assert not fits_grammar(held, special, f"<think>{thought}{call.replace('Köln', 'Bonn')}")
    begun = grammar(name, special, "<think>\n", "think")
    for text in (f"{thought}Hello {call}", "", "I could", f"I could {begin}"):
        assert fits_grammar(begun, special, text), text
    assert not fits_grammar(begun, special, f"{thought}{call.replace('Köln', 'Bonn')}")


PIECES = [
    *(
        "<tool_call>",
        "</tool_call>",
        "<function=",
        "add-2",
        ">",
        "\n",
        " ",
        "x",
        "[TOOL_CALLS]",
        "[",
    ),
    *(
        "<｜tool▁call▁begin｜>",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "{}",
        '{"a": 5}',
        "<",
    ),
    *(text for texts in WRITTEN.values() for text in texts),
    *(text.replace("Köln", "Bonn") for texts in WRITTEN.values() for text in texts),
    *LOOSE.values(),
]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FORMATS), st.booleans(), st.lists(st.sampled_from(PIECES), max_size=5))
def test_what_is_allowed_has_no_call_of_a_strict_tool_that_is_not_valid(name, special, pieces):
    text = "".join(pieces)
    held, begins = grammar(name, special), tool_formats()[name].begins
    allowed = fits_grammar(held, special, text)
    assert allowed or any(begin in text for begin in begins)
    if not allowed:
        return
    _, calls, _ = message(parsed(style(name), [text]))
    assert bool(calls) == any(begin in text for begin in begins)
    for called, arguments in calls:
        found = json.loads(arguments)
        if called in STRICT:
            jsonschema.validate(found, {"type": "object", **SCHEMAS[called]})


@pytest.mark.parametrize("name", ["llama3", "pythonic"])
def test_a_format_whose_calls_have_no_marker_holds_nobody_to_them(name):
    chat = chat_pb2.Chat(tools=tools())
    assert read_forced(chat, style(name), "", target(True)) is None


def test_nothing_is_held_without_strict_tools():
    chat = chat_pb2.Chat(tools=[tools()[-1]])
    assert read_forced(chat, style("hermes"), "", target(True)) is None


def test_what_is_wrong_with_strict_is_named():
    (tool,) = [each.replace('"strict": false', '"strict": 5') for each in tools()[-1:]]
    with pytest.raises(InvalidField) as refused:
        read_forced(chat_pb2.Chat(tools=[tools()[0], tool]), style("hermes"), "", target(True))
    assert refused.value.field == "chat.tools[1].function.strict"
