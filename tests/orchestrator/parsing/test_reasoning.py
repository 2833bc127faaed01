"""Reasoning, which is told from the message that follows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.orchestrator.parsing.answers import message, parsed, split, style

from specmesh.orchestrator.parsing.pieces import ContentPiece, ReasoningPiece

CALL = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
BEGUN = "<|assistant|>\n<think>\n"
CASES = [
    ("", "<think>\nhm \n</think>\n\nhello ", ("hello ", [], "hm")),
    ("", "<think></think>hello", ("hello", [], "")),
    ("", "<think>cut o", ("", [], "cut o")),
    ("", "\n<think>a<b</thin</think>", ("", [], "a<b</thin")),
    ("", " hello <think>no</think>", (" hello <think>no</think>", [], "")),
    ("", "<thi", ("<thi", [], "")),
    ("", "", ("", [], "")),
    (BEGUN, "hm\n</think>\n\nhello", ("hello", [], "hm")),
    (BEGUN, "<think>hm</think>hello", ("hello", [], "hm")),
    (BEGUN, "<thing> hm", ("", [], "<thing> hm")),
    (BEGUN, "", ("", [], "")),
    (BEGUN + "\n</think>\n\n", "hello", ("hello", [], "")),
    ("", f"<think>I could {CALL}</think>\n{CALL}", ("", [("add", "{}")], f"I could {CALL}")),
    ("", f"<think>hm</think>\n\nSo: \n{CALL}\n", ("So:", [("add", "{}")], "hm")),
    ("", CALL, ("", [("add", "{}")], "")),
]


@pytest.mark.parametrize(("prompt", "text", "expected"), CASES)
def test_reasoning_is_told_from_the_message(prompt, text, expected):
    assert message(parsed(style("hermes", "think"), [text], prompt)) == expected


@given(st.sampled_from(CASES), st.data())
def test_how_the_text_is_split_makes_no_difference(case, data):
    prompt, text, expected = case
    texts = data.draw(split(text))
    assert message(parsed(style("hermes", "think"), texts, prompt)) == expected


def test_another_model_marks_it_otherwise():
    text = "[THINK]hm[/THINK]hello"
    assert message(parsed(style("mistral", "mistral"), [text])) == ("hello", [], "hm")
    assert message(parsed(style("mistral"), [text])) == (text, [], "")


def test_reasoning_comes_as_it_is_written():
    parser = style(reasoning="think").parser("")
    assert parser.push("<think>\n") == []
    assert parser.push("one ") == [ReasoningPiece("one")]
    assert parser.push("two</th") == [ReasoningPiece(" two")]
    assert parser.push("ink>\n") == []
    assert parser.push("three ") == [ContentPiece("three ")]
    assert parser.end() == []


@pytest.mark.parametrize(
    ("prompt", "texts", "expected"),
    [
        ("", ["\n", "<th", "ink>", "hm", "</think>", "hi"], [0, 0, 1, 1, 0, 0]),
        (BEGUN, ["", "hm", "</", "think>", "\n", "hi"], [1, 1, 1, 0, 0, 0]),
        (BEGUN, ["<thi", "nk>", "hm"], [1, 1, 1]),
        ("", ["hi", "<think>", "hm"], [0, 0, 0]),
    ],
)
def test_the_parser_knows_whether_the_text_is_reasoning(prompt, texts, expected):
    parser = style("hermes", "think").parser(prompt)
    told = []
    for text in texts:
        parser.push(text)
        told.append(parser.is_reasoning)
    assert told == expected
    assert not style("hermes").parser(BEGUN).is_reasoning
