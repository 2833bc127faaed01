"""The likeliest of candidates, prompts' log-probabilities and echoes alone, through a gateway, on
real processes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from tests.e2e.processes import Process
from tests.e2e.test_gateway_chat import MESSAGES

from specmesh import models
from specmesh.client import AsyncClient

PROMPT = "def read(path):\n    return"
ASKED = {"model": models.TARGET, "max_tokens": 8, "temperature": 1.2, "seed": 5}


@pytest_asyncio.fixture
async def client(chat_mesh: Process) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(chat_mesh.address) as client:
        yield client


def post(gateway: Process, path: str = "completions", **body: Any) -> dict[str, Any]:
    answer = httpx2.post(f"http://{gateway.address}/v1/{path}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def mean(choice: dict[str, Any]) -> float:
    found = choice["logprobs"]["token_logprobs"]
    return sum(found) / len(found)


def test_the_best_are_those_of_the_highest_log_probability_per_token(chat_gateway: Process):
    prompts = [PROMPT, "import os\n"]
    all_of = post(chat_gateway, prompt=prompts, n=5, logprobs=0, **ASKED)
    best = post(chat_gateway, prompt=prompts, n=2, best_of=5, **ASKED)
    expected = [
        choice["text"]
        for start in (0, 5)
        for choice in sorted(all_of["choices"][start : start + 5], key=mean)[:2:-1]
    ]
    assert [choice["text"] for choice in best["choices"]] == expected
    assert len(set(expected)) == 4
    assert [choice["index"] for choice in best["choices"]] == [0, 1, 2, 3]
    assert [choice["logprobs"] for choice in best["choices"]] == [None] * 4
    counted = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [best["usage"][name] for name in counted] == [all_of["usage"][name] for name in counted]


def test_the_best_has_log_probabilities_if_they_are_asked_for(chat_gateway: Process):
    one = post(chat_gateway, prompt=PROMPT, best_of=3, logprobs=2, echo=True, **ASKED)
    (choice,) = one["choices"]
    assert choice["text"].startswith(PROMPT)
    assert len(choice["logprobs"]["top_logprobs"][-1]) >= 2


@pytest.mark.parametrize("num_top", [0, 3])
async def test_the_log_probabilities_of_a_prompt_are_the_meshs(chat_gateway, client, num_top):
    score = await client.score(PROMPT, num_top_logprobs=num_top)
    told = post(chat_gateway, prompt=[PROMPT, "x"], n=2, prompt_logprobs=num_top, **ASKED)
    first, second, third, _ = (choice["prompt_logprobs"] for choice in told["choices"])
    assert first == second
    assert third[0] is None
    check(first, score)


async def test_those_of_a_chat_are_of_its_whole_prompt(chat_gateway, client):
    spoken = [
        {"role": "system", "content": "Write Python."},
        {"role": "user", "content": "def größe(x):\n    return"},
    ]
    prompt = await client.apply_chat_template(spoken)
    score = await client.score(list(prompt.token_ids), num_top_logprobs=2)
    told = post(chat_gateway, "chat/completions", messages=MESSAGES, prompt_logprobs=2, **ASKED)
    check(told["prompt_logprobs"], score)
    assert "prompt_logprobs" not in told["choices"][0]


def check(told, score):
    start, *rest = told
    assert start is None
    assert len(rest) == len(score.logprobs)
    for entries, at in zip(rest, score.logprobs, strict=True):
        assert set(entries) == {str(each.token_id) for each in (at.chosen, *at.top)}
        chosen = entries[str(at.chosen.token_id)]
        assert chosen["logprob"] == pytest.approx(at.chosen.logprob, abs=1e-3)
        for rank, each in enumerate(at.top, 1):
            assert entries[str(each.token_id)]["rank"] == rank
        assert chosen["decoded_token"]


def nearly(value: Any) -> Any:
    """`value` with room for what a forward's other rows change in the last bits of its numbers."""

    def with_room(number: str) -> Any:
        return pytest.approx(float(number), abs=1e-3)

    return json.loads(json.dumps(value), parse_float=with_room)


async def test_no_tokens_and_an_echo_give_the_prompts_alone(chat_gateway, client):
    tokens = await client.tokenize(PROMPT)
    asked = {"model": models.TARGET, "max_tokens": 0, "echo": True, "logprobs": 1}
    told = post(chat_gateway, prompt=[PROMPT, PROMPT], n=2, **asked)
    by_tokens = post(chat_gateway, prompt=list(tokens), **asked)
    assert by_tokens["choices"] == nearly(told["choices"][:1])
    more = post(chat_gateway, prompt=PROMPT, **{**asked, "max_tokens": 1})
    assert [choice["text"] for choice in told["choices"]] == [PROMPT] * 4
    assert {choice["finish_reason"] for choice in told["choices"]} == {"length"}
    num_tokens = 2 * len(tokens)
    usage = (told["usage"]["prompt_tokens"], told["usage"]["completion_tokens"])
    assert usage == (num_tokens, 0)
    first = told["choices"][0]["logprobs"]
    longer = more["choices"][0]["logprobs"]
    assert first["tokens"] == longer["tokens"][:-1]
    assert first["token_logprobs"][1:] == pytest.approx(longer["token_logprobs"][1:-1], abs=1e-3)
    for plain in post(chat_gateway, prompt="x", **{**asked, "logprobs": None})["choices"]:
        assert (plain["text"], plain["logprobs"]) == ("x", None)


def test_an_echo_alone_is_streamed(chat_gateway: Process):
    asked = {"model": models.TARGET, "prompt": PROMPT, "max_tokens": 0, "echo": True}
    options = {"include_usage": True, "continuous_usage_stats": True}
    url = f"http://{chat_gateway.address}/v1/completions"
    body = {**asked, "stream": True, "stream_options": options}
    lines = httpx2.post(url, json=body, timeout=60).text.split("\n\n")
    *parts, counted = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert "".join(part["choices"][0]["text"] for part in parts) == PROMPT
    assert parts[-1]["choices"][0]["finish_reason"] == "length"
    assert counted["usage"]["completion_tokens"] == 0
    assert lines[-2:] == ["data: [DONE]", ""]
