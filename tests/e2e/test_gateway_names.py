"""Whatever is wrong with a parameter is told under the name that its caller has for it, and with
all that it may be."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest
from tests.e2e.processes import Process

from specmesh import models
from specmesh.gateway.requests.extension import Extension
from specmesh.gateway.requests.parameters.responses import RESPONSES
from specmesh.gateway.requests.parameters.standing import Standing
from specmesh.gateway.requests.parameters.tables import CHAT, COMPLETIONS, EXTENSION

CALLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "completions": (COMPLETIONS, {"prompt": "x", "max_tokens": 1}),
    "chat/completions": (
        CHAT,
        {"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 1},
    ),
    "responses": (RESPONSES, {"input": "x", "max_output_tokens": 1}),
}
WRONG: list[object] = [
    *({}, {"type": "other"}, {"a": []}, [], [[]], [{}], ["", "x", 5], "", "other", True),
    *(-1, -0.5, 0, 1.5, 101, 2**31, 2**64, 1e39, 10**400),
]
OURS = re.compile(r"\b(sampling|stopping|speculation|chat|format|tokens)\.\w|_pb2|pydantic")
"""What belongs to the mesh, or to the code."""
TELLING_OTHERS = {
    ("max_tokens", "max_completion_tokens"),  # they must not differ
    ("top_logprobs", "include"),
}


def named(table: dict[str, Any]) -> list[str]:
    """The parameters of a call, and the fields of its extension."""
    own = [f"{EXTENSION}.{name}" for name in Extension.model_fields]
    return [*(name for name in table if table[name].standing is not Standing.REFUSED), *own]


@pytest.mark.parametrize("path", CALLS)
def test_a_wrong_value_is_told_under_its_own_name(chat_gateway: Process, path: str):
    table, asked = CALLS[path]
    wrong = []
    with httpx2.Client(base_url=f"http://{chat_gateway.address}/v1/", timeout=60) as http:
        for name in named(table):
            for value in WRONG:
                if name.startswith("max_") and value in (101, 2**31):
                    continue  # is right, and long
                inner = name.removeprefix(f"{EXTENSION}.")
                change = {inner: value} if inner == name else {EXTENSION: {inner: value}}
                answer = http.post(path, json={"model": models.TARGET, **asked, **change})
                assert answer.status_code in {200, 400, 404}, (name, value, answer.text)
                if answer.status_code == 200:
                    continue
                told = answer.json()["error"]
                if not is_told(name, told):
                    wrong.append((name, value, told["param"], told["message"]))
    assert not wrong, "\n".join(map(str, wrong))


def is_told(name: str, told: dict[str, Any]) -> bool:
    param, message = told["param"] or "", told["message"]
    is_named = re.match(rf"{re.escape(name)}(?=$|[.\[])", param) or (name, param) in TELLING_OTHERS
    is_said = repr(param) in message or told["code"] == "model_not_found"
    return bool(is_named) and is_said and not OURS.search(message)


@pytest.mark.parametrize(
    ("path", "change", "param", "reason"),
    [
        ("completions", {"min_tokens": 5}, "min_tokens", "must be at most max_tokens"),
        ("chat/completions", {"min_tokens": 5}, "min_tokens", "at most max_completion_tokens"),
        ("responses", {"min_tokens": 5}, "min_tokens", "must be at most max_output_tokens"),
        (
            "completions",
            {"guided_regex": "a", "ignore_eos": True},
            "ignore_eos",
            "excludes guided_regex: a text",
        ),
        (
            "responses",
            {"text": {"format": {"type": "json_object"}}, "ignore_eos": True},
            "ignore_eos",
            "excludes text.format: a text",
        ),
        (
            "completions",
            {"min_p": 0.5, "specmesh": {"strategy": "filter"}},
            "specmesh.strategy",
            "so it excludes min_p",
        ),
        ("completions", {"stop": 5}, "stop", "should be a string or a list of strings"),
        ("completions", {"prompt": 5}, "prompt", "a string, a list of strings, or token ids"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": 5}]},
            "messages[0].content",
            "should be a string or a list of parts",
        ),
        (
            "chat/completions",
            {"tool_choice": "f"},
            "tool_choice",
            "should be one of 'none', 'auto', 'required', or an object",
        ),
        (
            "chat/completions",
            {"tool_choice": {"type": "custom"}},
            "tool_choice.type",
            "should be 'function' or 'allowed_tools'",
        ),
        (
            "chat/completions",
            {"response_format": {"type": "structural_tag"}},
            "response_format.type",
            "should be 'text', 'json_object' or 'json_schema'",
        ),
        (
            "completions",
            {"structured_outputs": {"regex": "a", "structural_tag": "{}"}},
            "structured_outputs.structural_tag",
            "is not supported here",
        ),
        (
            "completions",
            {"structured_outputs": {"regex": "a", "disable_any_whitespace": True}},
            "structured_outputs.disable_any_whitespace",
            "should be false",
        ),
        ("completions", {"guided_json": 5}, "guided_json", "an object, or one as JSON"),
        ("completions", {"logit_bias": 5}, "logit_bias", "should be an object"),
        ("responses", {"input": 5}, "input", "should be a string or a list of items"),
    ],
    ids=str,
)
def test_a_reason_has_the_callers_names_and_all_types(chat_gateway, path, change, param, reason):
    _, asked = CALLS[path]
    body = {"model": models.TARGET, **asked, **change}
    answer = httpx2.post(f"http://{chat_gateway.address}/v1/{path}", json=body, timeout=60)
    told = answer.json()["error"]
    assert (answer.status_code, told["param"]) == (400, param), told
    assert reason in told["message"]
