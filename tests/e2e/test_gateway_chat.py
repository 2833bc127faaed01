"""Chats and log-probabilities by OpenAI's own client, through a gateway, on real processes."""

from __future__ import annotations

import math

import openai
import pytest
from tests.e2e.conftest import Mesh
from tests.e2e.processes import Process, Processes

from specmesh import models
from specmesh.client import AsyncClient

MESSAGES = [
    {"role": "developer", "content": "Write Python."},
    {"role": "user", "content": [{"type": "text", "text": "def größe(x):\n    return"}]},
]
ASKED = {"model": models.TARGET, "messages": MESSAGES, "temperature": 0.8, "seed": 7}
LIMIT = {"max_completion_tokens": 24}


@pytest.fixture(scope="module")
def orchestrator(chat_mesh: Process) -> Process:
    return chat_mesh


async def test_a_chat_is_answered_as_the_mesh_answers_it(
    gateway: openai.AsyncOpenAI, orchestrator: Process
):
    spoken = [
        {"role": "system", "content": "Write Python."},
        {"role": "user", "content": "def größe(x):\n    return"},
    ]
    async with AsyncClient(orchestrator.address) as client:
        said = await client.chat(spoken, max_tokens=24, temperature=0.8, seed=7)
    answer = await gateway.chat.completions.create(**ASKED, **LIMIT)
    assert answer.choices[0].message.content == said.text
    assert answer.choices[0].finish_reason in {"stop", "length"}
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == said.stats.num_prompt_tokens


async def test_a_streamed_chat_is_the_same(gateway: openai.AsyncOpenAI):
    whole = await gateway.chat.completions.create(**ASKED, **LIMIT)
    stream = await gateway.chat.completions.create(
        **ASKED, **LIMIT, stream=True, stream_options={"include_usage": True}
    )
    *parts, last = [part async for part in stream]
    assert parts[0].choices[0].delta.role == "assistant"
    text = "".join(part.choices[0].delta.content or "" for part in parts)
    assert text == whole.choices[0].message.content
    assert (last.usage and last.usage.total_tokens) == (whole.usage and whole.usage.total_tokens)


def test_the_synchronous_client_gets_the_same(url: str):
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        whole = client.chat.completions.create(**ASKED, **LIMIT)
        stream = client.chat.completions.create(**ASKED, **LIMIT, stream=True)
        text = "".join(part.choices[0].delta.content or "" for part in stream)
    assert text == whole.choices[0].message.content


async def test_choices_of_a_chat_differ(gateway: openai.AsyncOpenAI):
    answer = await gateway.chat.completions.create(**ASKED, **LIMIT, n=3)
    assert len({choice.message.content for choice in answer.choices}) == 3


async def test_log_probabilities_are_the_targets_own(gateway: openai.AsyncOpenAI):
    answer = await gateway.chat.completions.create(
        **{**ASKED, "temperature": 0}, **LIMIT, logprobs=True, top_logprobs=3
    )
    told = answer.choices[0].logprobs
    assert told is not None
    assert told.content is not None
    assert answer.usage is not None
    assert len(told.content) == answer.usage.completion_tokens
    for token in told.content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token  # greedy: the likeliest
        assert math.isclose(token.top_logprobs[0].logprob, token.logprob)


async def test_a_stream_has_the_same_log_probabilities(gateway: openai.AsyncOpenAI):
    asked = {**ASKED, **LIMIT, "logprobs": True}
    whole = await gateway.chat.completions.create(**asked)
    stream = await gateway.chat.completions.create(**asked, stream=True)
    tokens = [
        token.token
        async for part in stream
        for token in (part.choices[0].logprobs and part.choices[0].logprobs.content) or ()
    ]
    assert whole.choices[0].logprobs is not None
    assert tokens == [token.token for token in whole.choices[0].logprobs.content or ()]


async def test_a_model_without_a_template_refuses_chats(mesh: Mesh, processes: Processes):
    gateway = processes.service("gateway", "--orchestrators", mesh.orchestrator.address)
    async with openai.AsyncOpenAI(
        base_url=f"http://{gateway.address}/v1", api_key="any", max_retries=0
    ) as client:
        with pytest.raises(openai.BadRequestError) as raised:
            await client.chat.completions.create(**ASKED)
    assert (raised.value.code, raised.value.param) == ("no_chat_template", "messages")


async def test_a_chat_beyond_the_context_is_refused(gateway: openai.AsyncOpenAI):
    long = [{"role": "user", "content": "word " * 3000}]
    with pytest.raises(openai.BadRequestError) as raised:
        await gateway.chat.completions.create(**{**ASKED, "messages": long})
    assert raised.value.param == "messages"
