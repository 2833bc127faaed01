"""Chats with tools from end to end of an orchestrator, whose target is scripted to call them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import grpc
import pytest
from tests.orchestrator.answers import Answer, collect, request, resuming
from tests.orchestrator.face import face, template
from tests.orchestrator.model import model_info
from tests.orchestrator.peers import Verifier
from tests.orchestrator.tool_templates import (
    DEEPSEEK_V3,
    GLM45,
    HERMES,
    LLAMA3,
    MISTRAL,
    PYTHONIC,
    QWEN3_CODER,
    THINKING,
)
from tests.tool_model import (
    END,
    END_ID,
    TOKENIZER,
    VOCAB_SIZE,
    arguments,
    calls,
    logits,
    written_tools,
)

from specmesh.orchestrator.chats import chat, tools
from specmesh.orchestrator.chats.tools import read_tools
from specmesh.orchestrator.requests.answer_format import ModelFormats
from specmesh.orchestrator.requests.plan import Defaults
from specmesh.orchestrator.requests.prompts import INLINE_CHARS
from specmesh.serving.errors import error_info, invalid_field
from specmesh.v1 import events_pb2, generation_pb2, served_model_pb2, session_pb2, tokenizer_pb2

USER = {"role": "user", "content": "Weather in Köln and Bonn?"}
FOUND = [("get_weather", arguments("Köln")), ("get_weather", arguments("Bonn"))]


def scripted(source: str) -> Verifier:
    """A replica of the model that calls tools, with this chat template."""
    verifier = Verifier()
    verifier.info = model_info(
        "scripted", vocab_size=VOCAB_SIZE, context_tokens=8192, end_of_text_ids=[END_ID]
    )
    verifier.tokenizer_json = TOKENIZER.to_str()
    verifier.chat_template = template(source, bos_token="", eos_token="")
    verifier.logits = logits
    return verifier


def asking(*messages: dict[str, Any], tools: bool = True, **fields: Any) -> Any:
    chat = {"messages": messages, "tools": written_tools() if tools else []}
    return request(text=None, chat=chat, **{"stopping": {}} | fields)


def message(deltas: Iterable[events_pb2.MessageDelta]) -> tuple[str, list[tuple[str, str]], str]:
    """The content, the calls and the reasoning of a message."""
    content, reasoning = "", ""
    calls: list[tuple[str, str]] = []
    for delta in deltas:
        content += delta.content
        reasoning += delta.reasoning_content
        if delta.HasField("tool_call"):
            call = delta.tool_call
            assert bool(call.id) is bool(call.name)
            if call.name:
                assert call.index == len(calls)
                calls.append((call.name, ""))
            name, written = calls[call.index]
            calls[call.index] = (name, written + call.arguments)
    return content, calls, reasoning


def deltas(answer: Answer) -> list[events_pb2.MessageDelta]:
    found = [delta for chunk in answer.chunks for delta in chunk.deltas]
    return [*found, *(answer.finished.deltas if answer.finished else ())]


@pytest.fixture
async def hermes(connect):
    async with face(await connect([scripted(HERMES)])) as clients:
        yield clients


async def test_calls_of_tools_come_as_deltas_beside_the_text(hermes):
    answer = await collect(hermes.generation.Generate(asking(USER)))
    assert answer.started.has_deltas
    assert message(deltas(answer)) == ("I look.", FOUND, "")
    assert answer.text == calls(["Köln", "Bonn"])
    assert answer.finished.finish_reason == events_pb2.FINISH_REASON_END_OF_TEXT
    ids = [each.tool_call.id for each in deltas(answer) if each.tool_call.id]
    assert len(set(ids)) == 2
    assert all(len(each) == 9 and each.isalnum() for each in ids)


async def test_results_go_back_to_the_model(hermes):
    called = {
        "role": "assistant",
        "tool_calls": [{"id": "a", "name": "get_weather", "arguments": arguments("Köln")}],
    }
    result = {"role": "tool", "content": "21 °C", "tool_call_id": "a"}
    answer = await collect(hermes.generation.Generate(asking(USER, called, result)))
    assert message(deltas(answer)) == ("It is 21 °C.", [], "")


async def test_a_whole_answer_has_all_deltas(hermes):
    response = await hermes.generation.Complete(
        generation_pb2.CompleteRequest(request=asking(USER))
    )
    assert message(response.chunk.deltas) == ("I look.", FOUND, "")
    assert not response.finished.deltas


async def test_an_answer_without_tools_and_reasoning_is_its_text(hermes):
    answer = await collect(hermes.generation.Generate(asking(USER, tools=False)))
    assert (answer.text, answer.started.has_deltas, deltas(answer)) == ("Hello!", False, [])


async def test_markers_that_are_special_tokens_are_kept_where_they_are_needed(connect):
    async with face(await connect([scripted(MISTRAL)])) as clients:
        answer = await collect(clients.generation.Generate(asking(USER)))
    assert message(deltas(answer)) == ("", FOUND, "")
    assert answer.text == calls(["Köln", "Bonn"], is_mistral=True)


async def test_reasoning_that_the_prompt_begins_is_told_from_the_message(connect):
    async with face(await connect([scripted(THINKING)])) as clients:
        plain = await collect(clients.generation.Generate(asking(USER, tools=False)))
        calling = await collect(clients.generation.Generate(asking(USER)))
        raw = await collect(
            clients.generation.Generate(
                asking(USER, tools=False, format={"reasoning": "none", "tool_calls": "auto"})
            )
        )
    assert message(deltas(plain)) == ("Hello!", [], "hm, hm")
    assert message(deltas(calling)) == ("I look.", FOUND, "hm, hm")
    assert (raw.text, deltas(raw)) == ("hm, hm\n\n\nHello!", [])


async def test_reasoning_is_counted_in_tokens_to_its_end(connect, store_on, redis_server):
    asked = asking(USER, tools=False)
    cut = asking(USER, tools=False, stopping={"max_tokens": 5})
    parsed_not = asking(USER, tools=False, format={"reasoning": "none"})
    store = store_on(redis_server.url)
    async with face(await connect([scripted(THINKING)]), store) as clients:
        answers = [
            await collect(clients.generation.Generate(each)) for each in (asked, cut, parsed_not)
        ]
        begun = await collect(clients.generation.Generate(asked), num_chunks=11)
        answers.append(await collect(clients.generation.Resume(resuming(begun)), begun=Answer()))
    stats = [answer.finished.stats for answer in answers]
    whole = len("hm, hm\n") + 1  # the marker is one token
    assert [each.num_reasoning_tokens for each in stats] == [whole, 5, 0, whole]
    told = [chunk.stats.num_reasoning_tokens for chunk in answers[0].chunks]
    assert told == sorted(told)
    assert (told[0], told[-1]) == (1, whole)


async def test_a_prompt_of_text_is_parsed_on_request(hermes):
    chat = asking(USER).chat
    prompt = await hermes.tokenizer.ApplyChatTemplate(
        tokenizer_pb2.ApplyChatTemplateRequest(chat=chat)
    )
    asked = request(text=prompt.text, stopping={}, format={"tool_calls": "hermes"})
    answer = await collect(hermes.generation.Generate(asked))
    assert message(deltas(answer)) == ("I look.", FOUND, "")


@pytest.mark.parametrize(
    ("stopping", "expected"),
    [
        ({}, "hm, hm\n</think>\n\nHello!"),
        ({"max_tokens": 18, "ignore_end_of_text": True}, f"hm, hm\n</think>\n\nHello!{END}{END}"),
        ({"stop_token_ids": [TOKENIZER.token_to_id("</think>")]}, "hm, hm\n"),
        ({"stop_strings": ["</think>\n"]}, "hm, hm\n"),
        ({"stop_strings": ["ink>"]}, "hm, hm\n</th"),
        ({"stop_strings": [END]}, "hm, hm\n</think>\n\nHello!"),
    ],
)
async def test_special_tokens_are_kept_on_request_but_not_one_that_ends_the_answer(
    connect, stopping, expected
):
    asked = asking(
        *(USER,), tools=False, keep_special_tokens=True, num_top_logprobs=0, stopping=stopping
    )
    async with face(await connect([scripted(THINKING)])) as clients:
        answer = await collect(clients.generation.Generate(asked))
    assert answer.text == expected
    told = [each for chunk in answer.chunks for each in chunk.logprobs]
    texts = [each.chosen.text_bytes.decode() for each in told]
    assert "".join(texts).startswith(expected)
    assert [each.text_offset for each in told] == [
        len("".join(texts[:number])) for number in range(len(told))
    ]


@pytest.mark.parametrize("source", [MISTRAL, QWEN3_CODER], ids=["mistral", "qwen3_coder"])
@pytest.mark.parametrize("num_chunks", [1, 15, 70])
async def test_a_resumed_answer_goes_on_with_the_same_call(
    connect, store_on, redis_server, num_chunks, source
):
    behind = await connect([scripted(source)])
    asked = asking(USER)
    async with face(behind, store_on(redis_server.url)) as clients:
        whole = await collect(clients.generation.Generate(asked))
        begun = await collect(clients.generation.Generate(asked), num_chunks)
        stored = await collect(
            clients.generation.Resume(resuming(begun)), begun=Answer(chunks=list(begun.chunks))
        )
        begun.started = events_pb2.GenerationStarted()
        received = asking(
            USER,
            received=begun.received,
            sampling={"temperature": 0, "seed": whole.started.seed},
            epoch=2,
        )
        again = await collect(
            clients.generation.Generate(received), begun=Answer(chunks=list(begun.chunks))
        )
    for resumed in (stored, again):
        assert resumed.text == whole.text
        assert message(deltas(resumed)) == message(deltas(whole))
        assert resumed.started.has_deltas


async def test_arguments_that_are_written_as_text_have_the_types_of_their_schema(connect):
    async with face(await connect([scripted(QWEN3_CODER)])) as clients:
        chat = asking(USER).chat
        by_schema = await collect(clients.generation.Generate(asking(USER)))
        prompt = await clients.tokenizer.ApplyChatTemplate(
            tokenizer_pb2.ApplyChatTemplateRequest(chat=chat)
        )
        days = {"tool": "get_weather", "name": "days", "types": ["string"]}
        told = {"tool_calls": "qwen3_coder", "arguments": [days]}
        asked = request(text=prompt.text, stopping={}, format=told)
        by_format = await collect(clients.generation.Generate(asked))
    assert message(deltas(by_schema)) == ("I look.", FOUND, "")
    assert message(deltas(by_format))[1][0] == ("get_weather", '{"city": "Köln", "days": "2"}')


async def test_a_stored_session_shows_the_text_that_its_stream_has(connect, store_on, redis_server):
    behind = await connect([scripted(MISTRAL)])
    async with face(behind, store_on(redis_server.url)) as clients:
        answer = await collect(clients.generation.Generate(asking(USER)))
        started = answer.started
        found = await clients.generation.GetSession(
            session_pb2.GetSessionRequest(
                session_id=started.session_id, resume_token=started.resume_token
            )
        )
    assert found.session.text == answer.text


@pytest.mark.parametrize(
    ("source", "formats", "tools", "reasoning"),
    [
        (HERMES, ModelFormats(), "hermes", "none"),
        (THINKING, ModelFormats(), "hermes", "think"),
        (LLAMA3, ModelFormats(), "llama3", "none"),
        (MISTRAL, ModelFormats(), "mistral", "none"),
        ("{{ messages[0].content }}", ModelFormats(), "none", "none"),
        (QWEN3_CODER, ModelFormats(), "qwen3_coder", "none"),
        (GLM45, ModelFormats(), "glm45", "none"),
        (DEEPSEEK_V3, ModelFormats(), "deepseek_v3", "none"),
        (PYTHONIC, ModelFormats(), "pythonic", "none"),
        ("{{ messages[0].content }}", ModelFormats("llama3", "think"), "llama3", "think"),
        (THINKING, ModelFormats("none", "none"), "none", "none"),
    ],
)
async def test_the_models_formats_are_those_of_its_template_unless_they_are_set(
    connect, serve, source, formats, tools, reasoning
):
    behind = await connect([scripted(source)])
    stub = await serve(behind, defaults=Defaults("autoregressive", formats=formats))
    (model,) = (await stub.ListModels(served_model_pb2.ListModelsRequest())).models
    assert (model.tool_format, model.reasoning_format) == (tools, reasoning)


async def test_tools_are_refused_where_nobody_knows_how_they_are_called(connect):
    source = "{{ tools | tojson }}{% for message in messages %}{{ message.content }}{% endfor %}"
    async with face(await connect([scripted(source)])) as clients:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await collect(clients.generation.Generate(asking(USER)))
        assert error_info(refused.value).reason == "NO_TOOL_FORMAT"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await collect(
                clients.generation.Generate(asking(USER, format={"tool_calls": "sumerian"}))
            )
        assert invalid_field(refused.value).field == "format.tool_calls"
        assert "hermes, llama3, mistral" in refused.value.details()
        asked = asking(USER, format={"tool_calls": "none"}, stopping={"max_tokens": 1})
        assert not (await collect(clients.generation.Generate(asked))).started.has_deltas


async def test_a_template_of_its_own_serves_chats_with_tools(connect):
    verifier = scripted(THINKING)
    verifier.chat_template.tool_source = HERMES
    async with face(await connect([verifier])) as clients:
        calling = await collect(clients.generation.Generate(asking(USER)))
        plain = await collect(clients.generation.Generate(asking(USER, tools=False)))
    assert message(deltas(calling)) == ("I look.", FOUND, "")
    assert message(deltas(plain)) == ("Hello!", [], "hm, hm")


async def test_tools_that_the_template_ignores_are_refused(connect):
    source = "{% for message in messages %}{{ message.content }}{% endfor %}<tool_call>"
    async with face(await connect([scripted(source)])) as clients:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await collect(clients.generation.Generate(asking(USER)))
    info = error_info(refused.value)
    assert (info.reason, dict(info.metadata)) == ("CHAT_REFUSED", {"ignored": "tools"})
    assert "does not show tools to the model, so they cannot be used" in refused.value.details()


@pytest.mark.parametrize(("padding", "is_apart"), [(0, False), (INLINE_CHARS, True)])
async def test_large_tools_are_never_read_on_the_event_loop(hermes, monkeypatch, padding, is_apart):
    threads = set()

    def read(chat):
        threads.add(threading.current_thread())
        return read_tools(chat)

    for module in (tools, chat):
        monkeypatch.setattr(module, "read_tools", read)
    asked = asking(USER)
    asked.chat.tools[0] += " " * padding
    answer = await collect(hermes.generation.Generate(asked))
    assert message(deltas(answer)) == ("I look.", FOUND, "")
    assert threads
    assert (threading.main_thread() not in threads) is is_apart
