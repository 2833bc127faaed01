"""POST /v1/chat/completions."""

from __future__ import annotations

import pytest
from google.protobuf import json_format
from tests.client.conftest import TOKENS, finished, started, whole_answer

from specmesh.v1 import events_pb2

TEXT = "".join(f"{token} " for token in TOKENS)
ASKED = {"model": "toy", "messages": [{"role": "user", "content": "hello"}]}


async def with_logprobs(_):
    """The euro sign in two tokens, then a special token."""
    yield started()
    tokens = [(1, b"\xe2\x82", -0.5), (2, b"\xac", -0.25), (3, b"", float("-inf"))]
    for index, (token, text, logprob) in enumerate(tokens):
        chosen = events_pb2.TokenLogprob(token_id=token, logprob=logprob, text_bytes=text)
        likelier = events_pb2.TokenLogprob(token_id=9, logprob=-0.125, text_bytes=b"x")
        yield events_pb2.GenerationEvent(
            chunk=events_pb2.GenerationChunk(
                first_index=index,
                token_ids=[token],
                text="€" if index == 1 else "",
                logprobs=[
                    events_pb2.TokenLogprobs(
                        chosen=chosen, top=[likelier], text_offset=int(index == 2)
                    )
                ],
            )
        )
    yield finished()


async def test_an_answer_is_the_assistants_message(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    answer = await gateway.openai.chat.completions.create(**ASKED)
    assert answer.id.startswith("chatcmpl-")
    assert (answer.object, answer.system_fingerprint) == ("chat.completion", "w-1")
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", TEXT)
    assert (choice.message.refusal, choice.message.tool_calls) == (None, None)
    assert choice.finish_reason == "length"
    assert choice.logprobs is None
    assert answer.usage.total_tokens == 3 + len(TOKENS)
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert choice.model_extra["specmesh"]["session_id"] == "s-1"


async def test_messages_reach_the_mesh_in_the_templates_words(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    await gateway.openai.chat.completions.create(
        model="toy",
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": "c", "refusal": None, "annotations": []},
            {"role": "user", "content": "d"},
        ],
    )
    (request,) = orchestrator.requests
    assert [(each.role, each.content) for each in request.chat.messages] == [
        ("system", "be brief"),
        ("user", "ab"),
        ("assistant", "c"),
        ("user", "d"),
    ]
    assert not request.stopping.HasField("max_tokens")


async def test_who_speaks_how_the_prompt_ends_and_what_else_the_template_takes_reach_the_mesh(
    gateway, orchestrator
):
    orchestrator.generate_scripts = [whole_answer]
    await gateway.openai.chat.completions.create(
        model="toy",
        messages=[
            {"role": "user", "content": "a", "name": "Ada"},
            {"role": "assistant", "content": "b", "name": ""},
        ],
        extra_body={
            "add_generation_prompt": False,
            "continue_final_message": True,
            "chat_template_kwargs": {"enable_thinking": False, "tools": [{"n": 1.5}]},
        },
    )
    chat = orchestrator.requests[0].chat
    assert [each.name for each in chat.messages] == ["Ada", ""]
    assert (chat.add_generation_prompt, chat.continue_final_message) == (False, True)
    assert json_format.MessageToDict(chat.template_arguments) == {
        "enable_thinking": False,
        "tools": [{"n": 1.5}],
    }


async def test_an_answer_can_be_given_back_as_a_message(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 2
    answer = await gateway.openai.chat.completions.create(**ASKED)
    messages = [*ASKED["messages"], answer.choices[0].message, {"role": "user", "content": "on"}]
    await gateway.openai.chat.completions.create(model="toy", messages=messages)
    assert len(orchestrator.requests[1].chat.messages) == 3


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_both_names_of_the_limit_mean_the_same(gateway, orchestrator, name):
    orchestrator.generate_scripts = [whole_answer]
    await gateway.openai.chat.completions.create(**ASKED, **{name: 5})
    assert orchestrator.requests[0].stopping.max_tokens == 5


async def test_a_stream_says_first_who_speaks(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    first, *parts, last, done = await gateway.events("/v1/chat/completions", ASKED)
    assert done is None
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(part["choices"][0]["delta"]["content"] for part in parts) == TEXT
    assert last["choices"][0]["delta"] == {}
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["choices"][0]["specmesh"]["strategy"] == "speculative"


async def test_a_stream_ends_with_usage_if_asked(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    stream = await gateway.openai.chat.completions.create(
        **ASKED, stream=True, stream_options={"include_usage": True}
    )
    *parts, last = [part async for part in stream]
    assert {part.usage for part in parts} == {None}
    assert (last.choices, last.usage.completion_tokens) == ([], len(TOKENS))


async def test_usage_comes_with_every_chunk_if_asked(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = {**ASKED, "stream_options": options}
    *parts, last, _ = await gateway.events("/v1/chat/completions", asked)
    counts = [
        (each["usage"]["prompt_tokens"], each["usage"]["completion_tokens"]) for each in parts
    ]
    assert counts == [(3, 0), *((3, told) for told in range(2, 13, 2)), (3, 12)]
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


async def test_log_probabilities_come_with_every_token(gateway, orchestrator):
    orchestrator.generate_scripts = [with_logprobs]
    answer = await gateway.openai.chat.completions.create(**ASKED, logprobs=True, top_logprobs=1)
    assert orchestrator.requests[0].num_top_logprobs == 1
    half, rest, special = answer.choices[0].logprobs.content
    assert (half.token, half.bytes, half.logprob) == ("bytes:\\xe2\\x82", [0xE2, 0x82], -0.5)
    assert (rest.token, special.token, special.bytes) == ("bytes:\\xac", "token_id:3", None)
    assert special.logprob == -9999.0
    assert [(top.token, top.logprob) for top in half.top_logprobs] == [("x", -0.125)]


async def test_log_probabilities_without_any_of_other_tokens(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer]
    await gateway.openai.chat.completions.create(**ASKED, logprobs=True)
    assert orchestrator.requests[0].num_top_logprobs == 0
    assert orchestrator.requests[0].HasField("num_top_logprobs")


async def test_a_stream_brings_log_probabilities_before_their_text_is_complete(
    gateway, orchestrator
):
    orchestrator.generate_scripts = [with_logprobs]
    _, *parts, _, _ = await gateway.events("/v1/chat/completions", {**ASKED, "logprobs": True})
    told = [each for part in parts for each in part["choices"][0]["logprobs"]["content"]]
    assert [each["token"] for each in told] == ["bytes:\\xe2\\x82", "bytes:\\xac", "token_id:3"]


async def test_log_probabilities_of_completions_tell_the_offset_in_the_text(gateway, orchestrator):
    orchestrator.generate_scripts = [with_logprobs] * 2
    asked = {"model": "toy", "prompt": "hello", "logprobs": 1}
    answer = await gateway.openai.completions.create(**asked)
    told = answer.choices[0].logprobs
    assert told.tokens == ["bytes:\\xe2\\x82", "bytes:\\xac", "token_id:3"]
    assert told.token_logprobs == [-0.5, -0.25, -9999.0]
    assert told.text_offset == [0, 0, 1]
    assert told.top_logprobs[0] == {"x": -0.125, "bytes:\\xe2\\x82": -0.5}
    *parts, _, _ = await gateway.events("/v1/completions", asked)
    offsets = [part["choices"][0]["logprobs"]["text_offset"] for part in parts]
    assert offsets == [[0], [0], [1]]


async def of_equal_texts(_):
    """A token with the same text as the likeliest and the third."""
    yield started()
    texts = {1: b" hello", 2: b" hello", 3: b" hello", 4: b"x"}
    tokens = [
        events_pb2.TokenLogprob(token_id=token, logprob=-token, text_bytes=text)
        for token, text in texts.items()
    ]
    told = events_pb2.TokenLogprobs(chosen=tokens[1], top=tokens)
    chunk = events_pb2.GenerationChunk(token_ids=[2], text=" hello", logprobs=[told])
    yield events_pb2.GenerationEvent(chunk=chunk)
    yield finished()


async def test_tokens_of_equal_text_all_have_their_own_log_probability(gateway, orchestrator):
    orchestrator.generate_scripts = [of_equal_texts]
    asked = {"model": "toy", "prompt": "hello", "logprobs": 4}
    told = (await gateway.openai.completions.create(**asked)).choices[0].logprobs
    assert told.tokens == [" hello"]
    assert told.top_logprobs == [
        {" hello": -2.0, "token_id:1": -1.0, "token_id:3": -3.0, "x": -4.0}
    ]
    assert told.token_logprobs == [told.top_logprobs[0][told.tokens[0]]]


async def test_what_messages_say_is_text_alone_on_request(gateway, orchestrator):
    orchestrator.generate_scripts = [whole_answer] * 2
    for asked in (False, True):
        extension = {"specmesh": {"content_as_text": asked}}
        await gateway.openai.chat.completions.create(**ASKED, extra_body=extension)
    assert [each.chat.content_as_text for each in orchestrator.requests] == [False, True]
