"""Tokens of texts and chats, echoes, responses and running usage, on real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import openai
import pytest
import pytest_asyncio
from tests.e2e.processes import Process, Processes
from tests.e2e.test_gateway_chat import MESSAGES
from tokenizers import Tokenizer

from specmesh import models
from specmesh.client import AsyncClient

TOKENIZER = Tokenizer.from_file(str(models.path(models.TARGET) / "tokenizer.json"))
TEXT = "def größe(x):\n    return"
ASKED = {"model": models.TARGET, "temperature": 0}


@pytest.fixture(scope="module")
def gateway(chat_mesh: Process) -> Iterator[Process]:
    """Over a mesh whose model has a chat template, and another name for it."""
    with Processes() as own:
        flags = ("--orchestrators", chat_mesh.address, "--served-model-name", "coder")
        yield own.service("gateway", *flags)


@pytest_asyncio.fixture
async def http(gateway: Process) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=f"http://{gateway.address}", timeout=60) as client:
        yield client


@pytest_asyncio.fixture
async def async_openai(gateway: Process) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"http://{gateway.address}/v1", api_key="any", max_retries=0
    ) as client:
        yield client


async def test_a_text_has_the_tokens_that_the_models_files_give_it(http: httpx2.AsyncClient):
    sent = await http.post("/tokenize", json={"prompt": TEXT, "return_token_strs": True})
    told = sent.json()
    expected = TOKENIZER.encode(TEXT)
    assert (told["tokens"], told["token_strs"]) == (expected.ids, expected.tokens)
    (model,) = [
        each for each in (await http.get("/v1/models")).json()["data"] if each["id"] == "coder"
    ]
    assert told["max_model_len"] == model["max_model_len"] > told["count"]
    back = await http.post("/detokenize", json={"model": "coder", "tokens": told["tokens"]})
    assert back.json() == {"prompt": TEXT}


async def test_more_tokens_than_the_context_holds_are_counted_and_spelled(http: httpx2.AsyncClient):
    text = "x y " * 1500
    told = (await http.post("/tokenize", json={"prompt": text, "return_token_strs": True})).json()
    expected = TOKENIZER.encode(text)
    assert told["count"] > told["max_model_len"]
    assert (told["tokens"], told["token_strs"]) == (expected.ids, expected.tokens)


async def test_special_tokens_of_an_echo_have_their_spelling(async_openai: openai.AsyncOpenAI):
    end = TOKENIZER.id_to_token(0)
    for text in (f"{end}def f", f"def{end} f{end}"):
        for prompt in (text, TOKENIZER.encode(text).ids):
            asked = {**ASKED, "prompt": prompt, "max_tokens": 1}
            (choice,) = (
                await async_openai.completions.create(**asked, echo=True, logprobs=1)
            ).choices
            told = choice.logprobs
            assert choice.text.startswith(text)
            assert "".join(told.tokens[: len(TOKENIZER.encode(text).ids)]) == text
            for offset, token in zip(told.text_offset, told.tokens, strict=True):
                assert choice.text[offset:].startswith(token) or token.startswith("token_id:")


async def test_a_chat_has_the_tokens_of_its_prompt(
    http: httpx2.AsyncClient, async_openai: openai.AsyncOpenAI
):
    sent = await http.post("/tokenize", json={"model": models.TARGET, "messages": MESSAGES})
    tokens = sent.json()["tokens"]
    back = (await http.post("/detokenize", json={"tokens": tokens})).json()["prompt"]
    assert TOKENIZER.encode(back).ids == tokens
    assert back == TOKENIZER.decode(tokens, skip_special_tokens=False)
    assert TEXT in back
    answer = await async_openai.chat.completions.create(messages=MESSAGES, max_tokens=1, **ASKED)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sent.json()["count"]


async def test_a_token_prompt_is_echoed_as_the_text_that_it_is(async_openai: openai.AsyncOpenAI):
    ids = TOKENIZER.encode(TEXT).ids
    asked = {**ASKED, "prompt": ids, "max_tokens": 8}
    alone = (await async_openai.completions.create(**asked)).choices[0].text
    echoed = await async_openai.completions.create(**asked, echo=True)
    assert echoed.choices[0].text == TEXT + alone
    stream = await async_openai.completions.create(**asked, echo=True, stream=True)
    assert "".join([part.choices[0].text async for part in stream]) == TEXT + alone


async def test_an_echo_has_the_log_probabilities_of_its_prompt(
    async_openai: openai.AsyncOpenAI, client: AsyncClient
):
    asked = {"model": "pycode-12m", "prompt": TEXT, "max_tokens": 4, "temperature": 0}
    plain = await async_openai.completions.create(**asked, logprobs=2)
    whole = await async_openai.completions.create(**asked, logprobs=2, echo=True)
    text, told = whole.choices[0].text, whole.choices[0].logprobs
    assert text == TEXT + plain.choices[0].text
    num_prompt = len(told.tokens) - len(plain.choices[0].logprobs.tokens)
    assert told.token_logprobs[0] is told.top_logprobs[0] is None
    assert told.token_logprobs[num_prompt:] == pytest.approx(
        plain.choices[0].logprobs.token_logprobs, abs=1e-3
    )
    score = await client.score(TEXT, num_top_logprobs=2)
    assert len(score.token_ids) == num_prompt
    expected = [each.chosen.logprob for each in score.logprobs]
    assert told.token_logprobs[1:num_prompt] == pytest.approx(expected, abs=1e-3)
    assert score.logprob == pytest.approx(sum(expected))
    for offset, token in zip(told.text_offset, told.tokens, strict=True):
        assert token.startswith("bytes:") or text[offset:].startswith(token)
    parts = [
        part
        async for part in await async_openai.completions.create(
            **asked, logprobs=2, echo=True, stream=True
        )
    ]
    streamed = [
        token
        for part in parts
        for each in part.choices
        for token in (each.logprobs.text_offset if each.logprobs else ())
    ]
    assert streamed == told.text_offset


@pytest.mark.parametrize(
    ("path", "asked", "param"),
    [
        ("/detokenize", {"tokens": [5, 2**31]}, "tokens[1]"),
        ("/v1/completions", {"prompt": [2**31], "echo": True}, "prompt[0]"),
        ("/v1/responses", {"input": "word " * 3000}, "input"),
        ("/v1/responses", {"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
    ],
)
async def test_what_the_mesh_refuses_has_the_calls_own_name(
    http: httpx2.AsyncClient, path: str, asked: dict[str, Any], param: str
):
    sent = await http.post(path, json={"model": models.TARGET, **asked})
    assert (sent.status_code, sent.json()["error"]["param"]) == (400, param), sent.text


async def test_a_response_says_what_a_chat_says(async_openai: openai.AsyncOpenAI):
    chat = await async_openai.chat.completions.create(messages=MESSAGES, max_tokens=24, **ASKED)
    asked = {**ASKED, "model": "coder", "instructions": "Write Python.", "max_output_tokens": 24}
    response = await async_openai.responses.create(input=TEXT, **asked)
    assert response.output_text == chat.choices[0].message.content
    assert response.model == "coder"
    assert response.usage is not None
    assert chat.usage is not None
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    async with async_openai.responses.stream(input=TEXT, **asked) as stream:
        deltas = [each.delta async for each in stream if each.type == "response.output_text.delta"]
    assert "".join(deltas) == response.output_text


async def test_every_chunk_tells_the_usage_so_far(async_openai: openai.AsyncOpenAI):
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    stream = await async_openai.chat.completions.create(
        messages=MESSAGES, max_tokens=16, stream=True, stream_options=options, **ASKED
    )
    *parts, last = [part.usage async for part in stream]
    assert last is not None
    assert all(each is not None for each in parts)
    counts = [each.completion_tokens for each in parts if each is not None]
    assert counts == sorted(counts)
    assert counts[-1] == last.completion_tokens
    assert {each.prompt_tokens for each in parts if each is not None} == {last.prompt_tokens}
