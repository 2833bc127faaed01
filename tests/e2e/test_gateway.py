"""OpenAI's own client, through a gateway, on a mesh of real processes."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator

import httpx2
import openai
import pytest
import pytest_asyncio
from tests.e2e.conftest import Mesh
from tests.e2e.processes import Process, Processes

from specmesh import models
from specmesh.client import AsyncClient

MODEL = models.TARGET
ASKED = {"model": MODEL, "max_tokens": 24, "temperature": 0.8, "seed": 7}


@pytest.fixture(scope="module")
def gateway(mesh: Mesh) -> Iterator[Process]:
    """Over the shared mesh."""
    with Processes() as own:
        yield own.service("gateway", "--orchestrators", mesh.orchestrator.address)


@pytest.fixture
def url(gateway: Process) -> str:
    return f"http://{gateway.address}/v1"


@pytest.fixture
def sync_openai(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        yield client


@pytest_asyncio.fixture
async def async_openai(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
        yield client


async def test_a_completion_is_what_the_mesh_says(
    async_openai: openai.AsyncOpenAI, client: AsyncClient, prompts: list[str]
):
    said = await client.generate(prompts[0], max_tokens=24, temperature=0.8, seed=7)
    answer = await async_openai.completions.create(prompt=prompts[0], **ASKED)
    assert answer.choices[0].text == said.text
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 24
    assert answer.usage.prompt_tokens == said.stats.num_prompt_tokens
    assert answer.system_fingerprint == said.model_fingerprint


async def test_a_streamed_completion_is_the_same(
    async_openai: openai.AsyncOpenAI, prompts: list[str]
):
    whole = await async_openai.completions.create(prompt=prompts[0], **ASKED)
    stream = await async_openai.completions.create(
        prompt=prompts[0], stream=True, stream_options={"include_usage": True}, **ASKED
    )
    *parts, last = [part async for part in stream]
    assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text
    assert last.usage is not None
    assert last.usage.completion_tokens == 24


def test_the_synchronous_client_gets_the_same(sync_openai: openai.OpenAI, prompts: list[str]):
    whole = sync_openai.completions.create(prompt=prompts[0], **ASKED)
    stream = sync_openai.completions.create(prompt=prompts[0], stream=True, **ASKED)
    assert "".join(part.choices[0].text for part in stream) == whole.choices[0].text


async def test_choices_and_prompts_are_told_apart(
    async_openai: openai.AsyncOpenAI, prompts: list[str]
):
    answer = await async_openai.completions.create(prompt=prompts[:2], n=2, **ASKED)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    alone = [
        (await async_openai.completions.create(prompt=prompt, **ASKED)).choices[0].text
        for prompt in prompts[:2]
    ]
    assert [answer.choices[0].text, answer.choices[2].text] == alone
    assert answer.choices[1].text != answer.choices[0].text


async def test_every_strategy_says_the_same_and_tells_how(
    async_openai: openai.AsyncOpenAI, prompts: list[str]
):
    texts = set()
    for strategy in ("autoregressive", "speculative", "dsi"):
        # Without a lookahead, drafts are left out where they don't pay, as on busy cores.
        how = {"strategy": strategy, "lookahead": 4}
        answer = await async_openai.completions.create(
            prompt=prompts[0], extra_body={"specmesh": how}, **ASKED
        )
        told = (answer.choices[0].model_extra or {})["specmesh"]
        assert told["strategy"] == strategy
        assert (told["acceptance"] is None) == (strategy == "autoregressive")
        texts.add(answer.choices[0].text)
    assert len(texts) == 1


async def test_a_stop_string_ends_the_text_before_it(
    async_openai: openai.AsyncOpenAI, prompts: list[str]
):
    whole = await async_openai.completions.create(prompt=prompts[0], **ASKED)
    stop = whole.choices[0].text[10:14]
    answer = await async_openai.completions.create(prompt=prompts[0], stop=stop, **ASKED)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].text == whole.choices[0].text.partition(stop)[0]


@pytest.mark.parametrize(
    ("change", "error", "param"),
    [
        ({"model": "nobody"}, openai.NotFoundError, "model"),
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"temperature": 101}, openai.BadRequestError, "temperature"),
        ({"top_p": -1}, openai.BadRequestError, "top_p"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens"),
        ({"seed": 2**53}, openai.BadRequestError, "seed"),
        ({"stop": ""}, openai.BadRequestError, "stop"),
        ({"prompt": ""}, openai.BadRequestError, "prompt"),
        ({"prompt": [2**31]}, openai.BadRequestError, "prompt"),
        ({"prompt": "word " * 2000}, openai.BadRequestError, "prompt"),
        ({"extra_body": {"specmesh": {"lookahead": 65}}}, openai.BadRequestError, "lookahead"),
        ({"extra_body": {"specmesh": {"strategy": "magic"}}}, openai.BadRequestError, "strategy"),
        ({"extra_body": {"specmesh": {"strategy": "filter"}}}, openai.BadRequestError, "strategy"),
    ],
)
async def test_what_the_mesh_refuses_is_named_as_openai_does(
    async_openai: openai.AsyncOpenAI, change, error, param
):
    with pytest.raises(error) as raised:
        await async_openai.completions.create(**{"prompt": "def ", **ASKED, **change})
    named = raised.value.param or ""
    assert named.removeprefix("specmesh.").partition("[")[0] == param


@pytest.mark.parametrize("prompt", ["word " * 2000, "word " * 200_000, [7] * 2000])
async def test_a_prompt_beyond_the_context_is_told_apart_as_openai_does(
    async_openai: openai.AsyncOpenAI, prompt
):
    """Programs that fall back on a model with a longer context decide by this code."""
    with pytest.raises(openai.BadRequestError) as raised:
        await async_openai.completions.create(prompt=prompt, **ASKED)
    assert (raised.value.code, raised.value.param) == ("context_length_exceeded", "prompt")


async def test_models_and_health(async_openai: openai.AsyncOpenAI, gateway: Process):
    (model,) = (await async_openai.models.list()).data
    assert model.id == MODEL
    assert "dsi" in (model.model_extra or {})["specmesh"]["strategies"]
    async with httpx2.AsyncClient(base_url=f"http://{gateway.address}") as http:
        assert (await http.get("/healthz")).status_code == 200


async def test_an_orchestrator_that_is_killed_is_not_noticed(
    mesh: Mesh, processes: Processes, prompts: list[str]
):
    flags = ("--redis-url", mesh.redis_url)
    victims = [processes.orchestrator(mesh.verifiers, [mesh.drafter], *flags) for _ in range(2)]
    addresses = ",".join(victim.address for victim in victims)
    gateway = processes.service("gateway", "--orchestrators", addresses)
    asked = {**ASKED, "max_tokens": 200, "extra_body": {"ignore_eos": True}}
    async with openai.AsyncOpenAI(
        base_url=f"http://{gateway.address}/v1", api_key="any", max_retries=0
    ) as client:
        whole = await client.completions.create(prompt=prompts[0], **asked)
        stream = await client.completions.create(prompt=prompts[0], stream=True, **asked)
        text, resumes = "", 0
        async for part in stream:
            if not text:  # The first answer began at one, so this one began at the other.
                await asyncio.to_thread(victims[1].kill)
            (choice,) = part.choices
            text += choice.text
            if choice.finish_reason:
                resumes = (choice.model_extra or {})["specmesh"]["num_resumes"]
    assert text == whole.choices[0].text
    assert resumes == 1


async def test_sigterm_lets_a_stream_end(mesh: Mesh, processes: Processes, prompts: list[str]):
    gateway = processes.service(
        "gateway", "--orchestrators", mesh.orchestrator.address, "--drain-seconds", "20"
    )
    async with openai.AsyncOpenAI(
        base_url=f"http://{gateway.address}/v1", api_key="any", max_retries=0
    ) as client:
        stream = await client.completions.create(
            prompt=prompts[0], stream=True, **{**ASKED, "max_tokens": 100}
        )
        reasons = []
        async for part in stream:
            if not reasons:
                gateway.send(signal.SIGTERM)
            reasons.append(part.choices[0].finish_reason)
        assert reasons[-1] in {"length", "stop"}
    assert await asyncio.to_thread(gateway.wait_exit) == 0
    line = gateway.wait_event("request")
    assert (line["outcome"], line["model"]) == ("ok", MODEL)
    assert line["output_tokens"] > 0
    assert line["first_tokens_ms"] > 0


def test_a_gateway_that_cannot_listen_says_so(processes: Processes, gateway: Process):
    port = gateway.address.rpartition(":")[2]
    second = processes.service("gateway", "--port", port)
    assert second.wait_exit() == 1
    assert "cannot listen" in second.wait_event("cannot start")["reason"]


async def test_an_answer_has_the_format_that_it_is_asked_for(
    async_openai: openai.AsyncOpenAI, client: AsyncClient, prompts: list[str]
):
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "old": {"type": "boolean"}},
        "required": ["name", "old"],
        "additionalProperties": False,
    }
    asked = {"model": MODEL, "prompt": prompts[0], "max_tokens": 64, "temperature": 0}
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    said = await async_openai.completions.create(**asked, extra_body={"response_format": wanted})
    value = json.loads(said.choices[0].text)
    assert set(value) == {"name", "old"}
    assert isinstance(value["old"], bool)
    chosen = await async_openai.completions.create(
        **asked, extra_body={"structured_outputs": {"choice": ["yes", "no"]}}
    )
    assert chosen.choices[0].text in {"yes", "no"}
    assert chosen.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_format_that_can_not_be_had_is_refused_before_any_text(
    async_openai: openai.AsyncOpenAI, stream: bool
):
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "strin"}}}
    with pytest.raises(openai.BadRequestError) as raised:
        await async_openai.completions.create(
            **ASKED, prompt="x", stream=stream, extra_body={"response_format": wanted}
        )
    assert raised.value.param == "response_format"
    assert "Invalid type: strin" in str(raised.value)
