"""POST /v1/completions: what is asked of the mesh, and how its answer is told."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from tests.client.conftest import (
    TOKENS,
    breaks_after,
    finished,
    refuses,
    rest_of_answer,
    started,
    whole_answer,
)
from tests.gateway.conftest import never_ends

from specmesh.v1 import events_pb2, sampling_pb2

TEXT = "".join(f"{token} " for token in TOKENS)
ASKED = {"model": "toy", "prompt": "hello"}


async def test_an_answer_has_text_usage_and_how_it_was_speculated(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    answer = await gateway.openai.completions.create(**ASKED)
    assert answer.id.startswith("cmpl-")
    assert (answer.object, answer.model, answer.system_fingerprint) == (
        *("text_completion", "toy"),
        "w-1",
    )
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason, choice.index) == (TEXT, "length", 0)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, len(TOKENS))
    assert answer.usage.total_tokens == 3 + len(TOKENS)
    told = choice.model_extra["specmesh"]
    assert (told["session_id"], told["strategy"], told["seed"]) == ("s-1", "speculative", 7)
    assert told["acceptance"] == pytest.approx(0.8)
    assert told["stats"]["num_verify_calls"] == 4


async def test_every_parameter_of_logit_processing_reaches_the_mesh(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    await gateway.openai.completions.create(
        **ASKED,
        presence_penalty=0.5,
        frequency_penalty=0.25,
        logit_bias={"0000000000007": -100, "9": 2.5},
        extra_body={
            "min_p": 0.125,
            "repetition_penalty": 1.5,
            "allowed_token_ids": [7, 8, 9],
            "bad_words": ["a", "b"],
            "min_tokens": 3,
            "specmesh": {
                "typical_p": 0.75,
                "banned_token_ids": [8],
                "banned_sequences": [[1, 2], [3]],
                "num_prompt_tokens": 2,
            },
        },
    )
    (request,) = orchestrator.requests
    assert request.sampling == sampling_pb2.SamplingParameters(
        presence_penalty=0.5,
        frequency_penalty=0.25,
        logit_bias={7: -100, 9: 2.5},
        min_p=0.125,
        repetition_penalty=1.5,
        allowed_token_ids=[7, 8, 9],
        bad_words=["a", "b"],
        min_tokens=3,
        typical_p=0.75,
        banned_token_ids=[8],
        banned_sequences=[{"token_ids": [1, 2]}, {"token_ids": [3]}],
        num_prompt_tokens=2,
    )


async def test_every_supported_parameter_reaches_the_mesh(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    await gateway.openai.completions.create(
        **ASKED,
        max_tokens=5,
        temperature=0.5,
        top_p=0.25,
        stop=["a", "b"],
        seed=11,
        logprobs=2,
        extra_body={
            "top_k": 9,
            "stop_token_ids": [4],
            "ignore_eos": True,
            "specmesh": {
                "strategy": "filter",
                "lookahead": 3,
                "predictor": "phi",
                "acceptance_mode": "rejection",
                "request_id": "r-1",
                "filter": {"scorer": "margin", "threshold": 0.5},
            },
        },
    )
    (request,) = orchestrator.requests
    assert (request.model, request.text, request.request_id) == ("toy", "hello", "r-1")
    sampling, stopping, speculation = request.sampling, request.stopping, request.speculation
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.25, 9)
    assert (sampling.seed, sampling.acceptance_mode) == (11, 2)
    assert (stopping.max_tokens, list(stopping.stop_strings)) == (5, ["a", "b"])
    assert (list(stopping.stop_token_ids), stopping.ignore_end_of_text) == ([4], True)
    assert (speculation.strategy, speculation.lookahead) == ("filter", 3)
    assert (speculation.predictor, speculation.filter.scorer) == ("phi", "margin")
    assert speculation.filter.threshold == 0.5
    assert request.num_top_logprobs == 2


async def test_what_is_left_out_is_left_to_the_mesh_but_for_openais_16_tokens(
    gateway, orchestrator
):
    orchestrator.generate_scripts = [whole_answer]
    await gateway.post("/v1/completions", {**ASKED, "temperature": None, "stop": None})
    (request,) = orchestrator.requests
    assert request.stopping.max_tokens == 16
    assert not request.sampling.ListFields()
    assert not request.speculation.ListFields()
    assert not request.HasField("num_top_logprobs")


async def test_what_load_generators_send_is_taken(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = {**ASKED, "stop": None, "ignore_eos": True, "stream_options": options}
    *_, last, done = await gateway.events("/v1/completions", asked)
    assert done is None
    assert last["usage"]["completion_tokens"] == len(TOKENS)
    assert orchestrator.requests[0].stopping.ignore_end_of_text


async def test_usage_comes_with_every_chunk_if_asked(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 2
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = {**ASKED, "n": 2, "stream_options": options}
    *parts, last, _ = await gateway.events("/v1/completions", asked)
    assert last["usage"]["completion_tokens"] == 2 * len(TOKENS)
    for number in range(2):
        told = [part["usage"] for part in parts if part["choices"][0]["index"] == number]
        assert {usage["prompt_tokens"] for usage in told} == {3}
        counts = [usage["completion_tokens"] for usage in told]
        assert counts == [*range(2, len(TOKENS) + 1, 2), len(TOKENS)]
        assert told[-1]["total_tokens"] == 3 + len(TOKENS)


async def test_usage_comes_with_every_chunk_only_beside_usage_at_the_end(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    asked = {**ASKED, "stream_options": {"continuous_usage_stats": True}}
    parts = await gateway.events("/v1/completions", asked)
    assert not any("usage" in part for part in parts[:-1])


async def test_prompts_may_be_many_and_token_ids(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 2
    answer = await gateway.openai.completions.create(model="toy", prompt=[[1, 2], [3]])
    assert sorted(list(request.tokens.ids) for request in orchestrator.requests) == [[1, 2], [3]]
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (6, 2 * len(TOKENS))


@pytest.mark.parametrize("given", [True, False, None])
async def test_special_tokens_are_put_around_a_text_as_asked(gateway, orchestrator, given):
    orchestrator.generate_scripts = [whole_answer]
    asked = {**ASKED, "add_special_tokens": given}
    assert (await gateway.post("/v1/completions", asked)).status_code == 200
    (request,) = orchestrator.requests
    assert request.HasField("add_special_tokens") == (given is not None)
    assert request.add_special_tokens == bool(given)


async def test_token_ids_have_no_special_tokens_to_leave_out(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    asked = {**ASKED, "prompt": [1, 2], "add_special_tokens": False}
    assert (await gateway.post("/v1/completions", asked)).status_code == 200
    (request,) = orchestrator.requests
    assert list(request.tokens.ids) == [1, 2]
    assert not request.HasField("add_special_tokens")


async def test_choices_of_one_prompt_have_different_seeds_that_follow_from_the_first(
    gateway, orchestrator
):
    for _ in range(2):
        orchestrator.generate_scripts = [whole_answer] * 3
        answer = await gateway.openai.completions.create(**ASKED, n=3, seed=5)
    assert len(answer.choices) == 3
    assert answer.usage.prompt_tokens == 3  # the prompt counts once
    seeds = [request.sampling.seed for request in orchestrator.requests]
    assert sorted(seeds[:3]) == sorted(seeds[3:])
    assert len(set(seeds)) == 3
    assert 5 in seeds
    assert max(seeds) < 2**53


async def test_choices_without_a_seed_leave_it_to_the_mesh(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 2
    await gateway.openai.completions.create(**ASKED, n=2)
    assert not any(request.sampling.HasField("seed") for request in orchestrator.requests)


async def test_choices_have_request_ids_of_their_own(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 2
    await gateway.post("/v1/completions", {**ASKED, "n": 2, "specmesh": {"request_id": "r"}})
    assert sorted(request.request_id for request in orchestrator.requests) == ["r/0", "r/1"]


async def test_one_failed_choice_fails_the_request_and_cancels_the_others(gateway, orchestrator):
    orchestrator.generate_scripts = [
        never_ends,
        refuses(grpc.StatusCode.FAILED_PRECONDITION, reason="REQUEST_BREAKS_REPLICAS"),
    ]
    response = await gateway.post("/v1/completions", {**ASKED, "n": 2})
    assert response.status_code == 500
    async with asyncio.timeout(5):
        await orchestrator.cancelled.wait()


async def test_a_stream_tells_the_same_text_in_parts(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    *parts, last, done = await gateway.events("/v1/completions", ASKED)
    assert done is None
    assert len({part["id"] for part in parts}) == 1
    assert "".join(part["choices"][0]["text"] for part in parts) == TEXT
    assert len(parts) == len(TOKENS) / 2
    assert {part["choices"][0]["finish_reason"] for part in parts} == {None}
    (choice,) = last["choices"]
    assert (choice["finish_reason"], choice["specmesh"]["session_id"]) == ("length", "s-1")
    assert last["system_fingerprint"] == "w-1"
    assert not any("usage" in part for part in (*parts, last))


async def test_a_stream_ends_with_usage_if_asked(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    stream = await gateway.openai.completions.create(
        **ASKED, stream=True, stream_options={"include_usage": True}
    )
    *parts, last = [part async for part in stream]
    assert {part.usage for part in parts} == {None}
    assert last.choices == []
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (3, len(TOKENS))


async def test_a_stream_of_several_choices_tells_them_apart(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 2
    stream = await gateway.openai.completions.create(**ASKED, n=2, stream=True)
    texts = {0: "", 1: ""}
    async for part in stream:
        texts[part.choices[0].index] += part.choices[0].text
    assert texts == {0: TEXT, 1: TEXT}


async def test_an_answer_that_breaks_in_the_mesh_is_carried_on_unnoticed(gateway, orchestrator):
    orchestrator.generate_scripts = [breaks_after(6)]
    orchestrator.resume_scripts = [rest_of_answer(6)]
    answer = await gateway.openai.completions.create(**ASKED)
    assert answer.choices[0].text == TEXT
    assert answer.choices[0].model_extra["specmesh"]["num_resumes"] == 1


def answers_with(text, logprob):
    """An answer of one token of this log-probability."""

    async def script(_):
        yield started()
        chosen = events_pb2.TokenLogprob(token_id=1, logprob=logprob, text_bytes=text.encode())
        logprobs = [events_pb2.TokenLogprobs(chosen=chosen)]
        yield events_pb2.GenerationEvent(
            chunk=events_pb2.GenerationChunk(token_ids=[1], text=text, logprobs=logprobs)
        )
        yield finished()

    return script


async def test_as_many_of_the_best_as_there_are_have_the_best_first_too(gateway, orchestrator):
    laws = {"a": -2.0, "b": -0.5, "c": -1.0}
    orchestrator.generate_scripts = [answers_with(*law) for law in laws.items()]
    response = await gateway.post("/v1/completions", {**ASKED, "n": 3, "best_of": 3})
    assert [choice["text"] for choice in response.json()["choices"]] == ["b", "c", "a"]
    assert [choice["logprobs"] for choice in response.json()["choices"]] == [None] * 3


async def test_all_candidates_may_be_streamed_as_they_come(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 2
    await gateway.events("/v1/completions", {**ASKED, "n": 2, "best_of": 2})
    assert not any(each.HasField("num_top_logprobs") for each in orchestrator.requests)
