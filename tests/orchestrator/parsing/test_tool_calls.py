"""Calls of tools in answers, in each of the formats."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.orchestrator.parsing.answers import message, parsed, split, style

from specmesh.orchestrator.parsing.pieces import CallPiece, ContentPiece
from specmesh.orchestrator.parsing.registry import tool_formats

WEATHER = '{"city": "Köln", "days": [1, 2], "note": "a } \\" </tool_call> [TOOL_CALLS] {"}'
CALL = f'{{"name": "get_weather", "arguments": {WEATHER}}}'
ADD = '{"name": "add", "parameters": {"a": 12345678901234567890, "b": 0.10}}'
SUM = '{"a": 12345678901234567890, "b": 0.10}'
FOUND = [("get_weather", WEATHER), ("add", SUM)]

QWEN = """<tool_call>
<function=get_weather>
<parameter=city>
Köln
</parameter>
<parameter=days>
[1, 2]
</parameter>
<parameter=note>
a } " </tool_call> [TOOL_CALLS] {
</parameter>
</function>
</tool_call>"""
QWEN_ADD = """<tool_call>
<function=add>
<parameter=a>
12345678901234567890
</parameter>
<parameter=b>
0.10
</parameter>
</function>
</tool_call>"""
GLM = """<tool_call>get_weather
<arg_key>city</arg_key>
<arg_value>Köln</arg_value>
<arg_key>days</arg_key>
<arg_value>[1, 2]</arg_value>
<arg_key>note</arg_key>
<arg_value>a } " </tool_call> [TOOL_CALLS] {</arg_value>
</tool_call>"""
GLM_47 = GLM.replace("\n", "")
GLM_ADD = """<tool_call>add
<arg_key>a</arg_key>
<arg_value>12345678901234567890</arg_value>
<arg_key>b</arg_key>
<arg_value>0.10</arg_value>
</tool_call>"""
DEEPSEEK_ADD = f"<｜tool▁call▁begin｜>add<｜tool▁sep｜>{SUM}<｜tool▁call▁end｜>"
DEEPSEEK = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
    f"{WEATHER}<｜tool▁call▁end｜>"
)
DEEPSEEK_R1 = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
    f"{WEATHER}\n```<｜tool▁call▁end｜>"
)
PYTHON = '[get_weather(city=\'Köln\', days=[1, 2], note="a } \\" </tool_call> [TOOL_CALLS] {")]'

CALLS = {
    "hermes": [
        (f"<tool_call>\n{CALL}\n</tool_call>", "", FOUND[:1]),
        (f"Let me see.\n\n<tool_call>{CALL}</tool_call>", "Let me see.", FOUND[:1]),
        (f"<tool_call>{CALL}</tool_call>\n<tool_call>\n{ADD}</tool_call>\n", "", FOUND),
        (f"<tool_call>{CALL}\n<tool_call>{ADD}", "", FOUND),
        (f"a <tool_call>{CALL}</tool_call> b", "ab", FOUND[:1]),
        (f'<tool_call>{{"arguments": {SUM}, "name": "add"}}</tool_call>', "", FOUND[1:]),
        (f'<tool_call>{{"id": 7, "name": "add", "arguments": {SUM}, "x": null}}', "", FOUND[1:]),
        (f'<tool_call>{{"name": "add", "arguments": {SUM}</tool_call>', "", FOUND[1:]),
        ('<tool_call>{"name": "now"}</tool_call>', "", [("now", "{}")]),
        ('<tool_call>{"name": "n\\u00f6w", "arguments": {}}', "", [("nöw", "{}")]),
    ],
    "llama3": [
        (CALL, "", FOUND[:1]),
        (f"\n{ADD}", "", FOUND[1:]),
        (f"<|python_tag|>{CALL}", "", FOUND[:1]),
        (f"{CALL}; {ADD}", "", FOUND),
        (f"<|python_tag|>{CALL}\n{ADD}", "", FOUND),
        (f"I look it up. <|python_tag|>{ADD}", "I look it up.", FOUND[1:]),
        (f'{{"type": "function", "name": "add", "parameters": {SUM}}}', "", FOUND[1:]),
        ('<|python_tag|>{"name": "other", "parameters": {}}', "", [("other", "{}")]),
    ],
    "mistral": [
        (f"[TOOL_CALLS] [{CALL}, {ADD}]", "", FOUND),
        (f"Sure. [TOOL_CALLS][{CALL}]", "Sure.", FOUND[:1]),
        (f"[TOOL_CALLS]get_weather{WEATHER}[TOOL_CALLS]add{SUM}", "", FOUND),
        (f"[TOOL_CALLS]add[ARGS]{SUM}", "", FOUND[1:]),
        (f"[TOOL_CALLS]add[CALL_ID]a1B2c3D4e[ARGS]{SUM}", "", FOUND[1:]),
        (f"[TOOL_CALLS][{CALL}", "", FOUND[:1]),
    ],
    "qwen3_coder": [
        (QWEN, "", FOUND[:1]),
        (f"I look.\n\n{QWEN}\n{QWEN_ADD}\n", "I look.", FOUND),
        (QWEN.replace("\n", ""), "", FOUND[:1]),
        (QWEN_ADD.removeprefix("<tool_call>\n"), "", FOUND[1:]),
        ("<tool_call>\n<function=now>\n</function>\n</tool_call> x", "x", [("now", "{}")]),
        (f"a {QWEN} b", "ab", FOUND[:1]),
    ],
    "glm45": [
        (GLM, "", FOUND[:1]),
        (f"I look.\n{GLM}\n{GLM_ADD}", "I look.", FOUND),
        (f"{GLM_47} b", "b", FOUND[:1]),
        ("<tool_call>now</tool_call>", "", [("now", "{}")]),
        ("<tool_call>now\n</tool_call>", "", [("now", "{}")]),
    ],
    "deepseek_v3": [
        (f"{DEEPSEEK}<｜tool▁calls▁end｜>", "", FOUND[:1]),
        (f"I look.{DEEPSEEK}{DEEPSEEK_ADD}<｜tool▁calls▁end｜>", "I look.", FOUND),
        (f"{DEEPSEEK_R1}<｜tool▁calls▁end｜>", "", FOUND[:1]),
        (f"{DEEPSEEK_R1}\n{DEEPSEEK_ADD}<｜tool▁calls▁end｜>", "", FOUND),
        (DEEPSEEK_ADD, "", FOUND[1:]),
        (f"{DEEPSEEK}<｜tool▁calls▁end｜> so", "so", FOUND[:1]),
    ],
    "pythonic": [
        (PYTHON, "", FOUND[:1]),
        (f"{PYTHON[:-1]}, add(a=12345678901234567890, b=0.10)]", "", FOUND),
        (f"<|python_start|>{PYTHON}<|python_end|>", "", FOUND[:1]),
        (f"I look.<|python_start|>{PYTHON}<|python_end|> b", "I look.b", FOUND[:1]),
        ("<|python_start|>[other.name()]", "", [("other.name", "{}")]),
        ("[ add ( a = 5 , ) ]", "", [("add", '{"a": 5}')]),
    ],
}
CASES = [(name, *case) for name, cases in CALLS.items() for case in cases]

NONE = {
    "hermes": [
        "<tool_call>", "<tool_call>\nno", "</tool_call> a < b", "<tool_cal", " a \n",
        '<tool_call>{"name": "add"', '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "add", "arguments": "{}"}</tool_call>', '<tool_call>{}</tool_call>',
        '<tool_call>{"arguments": {"a": 1}}</tool_call> x ', '<tool_call>{"name": "", "a": 1}',
        '<tool_call>{"name": "\\ud800", "arguments": {}}',
    ],
    "llama3": [
        "", "   ", " hello ", '{"a": 1}', '{"name": "Ada"}', '{"name": "Ada", "parameters": {}}',
        '{"name": "add"}', '{"name": "add", "parameters": 5}', '{"name": "add", "b": 1}',
        '<|python_tag|>brave_search.call(query="x")', "{", '{"name": "add", "parameters": ',
        f"so: {ADD}",
    ],
    "mistral": [
        "[TOOL_CALLS]", "[TOOL_CALLS] hello you {}", "[TOOL_CALLS][]", "[TOOL_CALLS]add",
        '[TOOL_CALLS]["add"]', "[TOOL_CALLS]a b{}", "[TOOL", "[TOOL_CALLS]add[ARGS]\n\n",
        "[TOOL_CALLS]" + "a" * 300 + "{}",
    ],
    "qwen3_coder": [
        "<tool_call>", "<tool_call>\nno", '<tool_call>{"name": "add"}', "</tool_call> a", "<funct",
        "<function=other>\n</function>", "<tool_call><function=>", "<tool_call>\n<function=add",
        "<tool_call><function=" + "a" * 300,
    ],
    "glm45": [
        "<tool_call>", "<tool_call>\n</tool_call>", "<tool_call>add", "<tool_call>add\nno",
        "</tool_call>", "<tool_call>add<arg_key>a</arg_key>", "<tool_call><b</tool_call>",
    ],
    "deepseek_v3": [
        "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜>no", "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>add<｜tool▁sep｜>5", "<｜tool▁call▁begin｜>{}",
        "<｜tool▁call▁begin｜>" + "a" * 300, "<｜tool▁call▁begin｜><｜tool▁sep｜>{}",
    ],
    "pythonic": [
        "[]", "[1, 2]", "[add]", "[other()]", "[add", "so: [add()]", "[(add)()]", '["add()"]',
        "<|python_start|>print(5)", "<|python_end|>",
    ],
}  # fmt: skip
NO_CASES = [(name, text) for name, texts in NONE.items() for text in texts]


@pytest.mark.parametrize(("name", "text", "content", "calls"), CASES)
def test_calls_are_told_from_content(name, text, content, calls):
    assert message(parsed(style(name), [text])) == (content, calls, "")


@pytest.mark.parametrize(("name", "text"), NO_CASES)
def test_what_is_no_call_is_content_unchanged(name, text):
    assert message(parsed(style(name), [text])) == (text, [], "")


@given(st.sampled_from([(case[0], case[1]) for case in (*CASES, *NO_CASES)]), st.data())
def test_how_the_text_is_split_makes_no_difference(case, data):
    name, text = case
    texts = data.draw(split(text))
    assert message(parsed(style(name), texts)) == message(parsed(style(name), [text]))


MARKS = [
    *("<tool_call>", "</tool_call>", "<tool", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "[", "]"),
    *(CALL, ADD, SUM, "add", '{"name": "add", ', '"arguments": {', "}", '"', "\\", ";", ",", ":"),
    *(" ", "\n", "x", "é", "{", "5", "(", ")", "'", "=", "[add(", "a=", "[1, {", "True"),
    *(
        "<function=add>",
        "</function>",
        "<parameter=a>",
        "</parameter>",
        "<parameter=city>",
        QWEN_ADD,
    ),
    *("<arg_key>city", "</arg_key>", "<arg_value>", "</arg_value>", "<tool_call>add", GLM_ADD),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    *(DEEPSEEK_ADD, PYTHON, "<|python_start|>", "<|python_end|>"),
]


@given(st.sampled_from(list(tool_formats())), st.lists(st.sampled_from(MARKS), max_size=10))
def test_any_text_gives_the_same_whole_and_by_characters(name, marks):
    text = "".join(marks)
    whole = parsed(style(name), [text])
    assert message(parsed(style(name), text)) == message(whole)


@given(st.sampled_from(list(tool_formats())), st.text(alphabet='ab <{"}\\[é\n(=｜'))
def test_text_without_markers_is_content(name, text):
    assert message(parsed(style(name), [text])) == (text, [], "")


@pytest.mark.parametrize("name", CALLS)
def test_every_prefix_loses_nothing_but_markup(name):
    """A call that is cut off keeps what there is of its arguments."""
    text = CALLS[name][0][0]
    seen = 0
    for end in range(len(text) + 1):
        content, calls, _ = message(parsed(style(name), [text[:end]]))
        if not calls:
            assert content == text[:end]
            continue
        assert text[:end].endswith(content)  # markup that is cut off
        assert calls[0][0] == "get_weather"
        assert WEATHER.startswith(calls[0][1])
        assert len(calls[0][1]) >= seen
        seen = len(calls[0][1])
    assert seen == len(WEATHER)


def test_a_call_begins_with_its_name_and_goes_on_with_its_arguments():
    parser = style("hermes").parser("")
    assert parser.push('Well <tool_call>{"name": "add", "argu') == [ContentPiece("Well")]
    assert parser.push('ments": {"a') == [CallPiece(0, "add", '{"a')]
    assert parser.push('": 1}}</tool_') == [CallPiece(0, "", '": 1}')]
    assert parser.push("call>") == []
    assert parser.end() == []


def test_what_may_begin_a_marker_waits_until_that_is_decided():
    parser = style("hermes").parser("")
    assert parser.push("a <tool") == [ContentPiece("a")]
    assert parser.push("s>") == [ContentPiece(" <tools>")]


def test_json_that_calls_no_known_tool_waits_no_longer_than_it_must():
    parser = style("llama3").parser("")
    assert parser.push('{"name": "Ada') == []
    assert parser.push('", "born": ') == [ContentPiece('{"name": "Ada", "born":')]
    parser = style("llama3").parser("")
    assert parser.push('{"answer": 4') == [ContentPiece('{"answer": 4')]


def test_arguments_that_are_no_json_are_passed_on_as_they_are():
    text = '<tool_call>{"name": "add", "arguments": {a: 1, b}}</tool_call>'
    assert message(parsed(style("hermes"), [text])) == ("", [("add", "{a: 1, b}")], "")


def test_arguments_keep_their_numbers_and_the_order_of_their_keys():
    _, ((_, arguments),), _ = message(parsed(style("llama3"), [ADD]))
    assert arguments == SUM
    assert json.loads(arguments)["a"] == 12345678901234567890
