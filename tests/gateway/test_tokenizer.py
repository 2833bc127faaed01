"""POST /tokenize and /detokenize, and the echo of prompts, over a mesh whose tokens are bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.conftest import Gateway, Open
from tests.gateway.test_bad_input import JSON, assert_refused_by_name

from specmesh.client.testing import FakeMesh
from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.parameters.standing import Standing
from specmesh.gateway.requests.tokenization import (
    DETOKENIZE,
    TOKENIZE_CHAT,
    TOKENIZE_TEXT,
    Detokenize,
    TokenizeChat,
    TokenizeText,
    detokenize_request,
    tokenize_request,
)

MODEL = "fake"
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture
def mesh() -> Iterator[FakeMesh]:
    with FakeMesh() as mesh:
        yield mesh


@pytest.fixture
async def gateway(open_gateway: Open, mesh: FakeMesh) -> Gateway:
    return await open_gateway(mesh.address, served_model_name="gpt-4")


@pytest.mark.parametrize("name", [{"model": MODEL}, {"model": "gpt-4"}, {"model": None}, {}])
async def test_a_text_becomes_tokens_and_back(gateway, name):
    sent = await gateway.post("/tokenize", {**name, "prompt": "hé"})
    tokens = [0x68, 0xC3, 0xA9]
    assert sent.json() == {"count": 3, "max_model_len": 0, "tokens": tokens, "token_strs": None}
    back = await gateway.post("/detokenize", {**name, "tokens": tokens})
    assert back.json() == {"prompt": "hé"}


async def test_tokens_are_spelled_if_asked(gateway):
    sent = await gateway.post("/tokenize", {"prompt": "hé", "return_token_strs": True})
    assert sent.json()["token_strs"] == ["h", "Ã", "©"]


async def test_a_chat_becomes_the_tokens_of_its_prompt(gateway):
    for asked, prompt in (
        ({}, "user: hi\nassistant:"),
        ({"continue_final_message": True}, "user: hi"),
        ({"specmesh": {"content_as_text": True}}, "user: hi\nassistant:"),
        ({"add_special_tokens": False, "tools": [], "chat_template": None}, "user: hi\nassistant:"),
    ):
        sent = await gateway.post("/tokenize", {"model": MODEL, "messages": MESSAGES, **asked})
        assert bytes(sent.json()["tokens"]).decode() == prompt


async def test_neither_needs_tokens_to_be_any(gateway):
    sent = await gateway.post("/tokenize", {"prompt": ""})
    assert (sent.json()["count"], sent.json()["tokens"]) == (0, [])
    assert (await gateway.post("/detokenize", {"tokens": []})).json() == {"prompt": ""}


async def test_an_unknown_model_is_not_found(gateway):
    sent = await gateway.post("/tokenize", {"model": "other", "prompt": "hi"})
    assert (sent.status_code, sent.json()["error"]["code"]) == (404, "model_not_found")


async def test_the_log_has_them_as_it_has_other_calls(gateway, caplog):
    caplog.set_level("INFO", "specmesh.gateway")
    await gateway.post("/tokenize", {"model": MODEL, "prompt": "hi"})
    (line,) = [record for record in caplog.records if record.getMessage() == "request"]
    assert (line.path, line.model, line.status) == ("/tokenize", MODEL, 200)


@pytest.mark.parametrize(
    ("read", "asked", "param"),
    [
        (tokenize_request, {}, "prompt"),
        (tokenize_request, {"prompt": ["hi"]}, "prompt"),
        (tokenize_request, {"prompt": "hi", "messages": MESSAGES}, "prompt"),
        (tokenize_request, {"prompt": "hi", "add_special_tokens": 1}, "add_special_tokens"),
        (tokenize_request, {"prompt": "hi", "add_generation_prompt": 1}, "add_generation_prompt"),
        (tokenize_request, {"prompt": "hi", "return_token_strs": "yes"}, "return_token_strs"),
        (tokenize_request, {"prompt": "hi", "temperature": 1}, "temperature"),
        (tokenize_request, {"prompt": "hi", "specmesh": {}}, "specmesh"),
        (tokenize_request, {"messages": []}, "messages"),
        (tokenize_request, {"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            tokenize_request,
            {"messages": MESSAGES, "add_special_tokens": True},
            "add_special_tokens",
        ),
        (tokenize_request, {"messages": MESSAGES, "chat_template": "x"}, "chat_template"),
        (tokenize_request, {"messages": MESSAGES, "tools": [{}]}, "tools"),
        (tokenize_request, {"messages": MESSAGES, "n": 1}, "n"),
        (tokenize_request, {"messages": MESSAGES, "specmesh": {"top_k": 1}}, "specmesh.top_k"),
        (detokenize_request, {}, "tokens"),
        (detokenize_request, {"tokens": "hi"}, "tokens"),
        (detokenize_request, {"tokens": [1, -1]}, "tokens[1]"),
        (detokenize_request, {"tokens": [1], "prompt": "hi"}, "prompt"),
    ],
)
def test_a_wrong_field_is_named(read, asked, param):
    with pytest.raises(ApiError) as raised:
        read(asked)
    assert (raised.value.status, raised.value.param) == (400, param)


@pytest.mark.parametrize(
    ("table", "request_class"),
    [(TOKENIZE_TEXT, TokenizeText), (TOKENIZE_CHAT, TokenizeChat), (DETOKENIZE, Detokenize)],
)
def test_what_is_not_refused_has_a_field(table, request_class):
    read = {name for name, each in table.items() if each.standing is not Standing.REFUSED}
    assert read <= set(request_class.model_fields)


@given(name=st.sampled_from([*TOKENIZE_CHAT, "prompt", "tokens", "other"]), value=JSON)
def test_no_value_of_a_field_is_more_than_a_bad_request(name, value):
    assert_refused_by_name(tokenize_request, {"messages": MESSAGES, name: value})
    assert_refused_by_name(tokenize_request, {"prompt": "hi", name: value})
    assert_refused_by_name(detokenize_request, {"tokens": [1], name: value})


@pytest.mark.parametrize("stream", [False, True])
async def test_a_completion_echoes_its_prompts_before_each_answer(gateway, mesh, stream):
    for _ in range(4):
        mesh.answer(" a", "b")
    asked = {"model": "gpt-4", "prompt": [[0x68, 0xC3, 0xA9], [0x78]], "echo": True, "n": 2}
    texts = dict.fromkeys(range(4), "")
    if stream:
        *parts, _ = await gateway.events("/v1/completions", asked)
    else:
        parts = [(await gateway.post("/v1/completions", asked)).json()]
    for choice in (each for part in parts for each in part["choices"]):
        texts[choice["index"]] += choice["text"]
    assert list(texts.values()) == ["hé ab", "hé ab", "x ab", "x ab"]


async def test_a_text_is_echoed_as_it_was_written(gateway, mesh):
    mesh.answer("b")
    asked = {"model": MODEL, "prompt": " <s> a", "echo": True}
    answer = await gateway.openai.completions.create(**asked)
    assert answer.choices[0].text == " <s> ab"
