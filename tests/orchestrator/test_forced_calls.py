"""Answers that must call tools, from end to end of an orchestrator. Its replicas here follow no
grammar: they are asked to."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest
from tests.orchestrator.answers import Answer, collect, resuming
from tests.orchestrator.face import face
from tests.orchestrator.model import features_but
from tests.orchestrator.peers import raising
from tests.orchestrator.test_tools import USER, asking, deltas, message, scripted
from tests.orchestrator.tool_templates import HERMES, MISTRAL, THINKING
from tests.tool_model import TOKENIZER

from specmesh.decoding.errors import InvalidField
from specmesh.serving.errors import error_info, invalid_field
from specmesh.v1 import generation_pb2, model_pb2


def forcing(**fields: Any) -> Any:
    """A chat that must call its tool."""
    asked = asking(USER, **fields)
    asked.chat.tool_choice.SetInParent()
    return asked


def with_strict(**fields: Any) -> Any:
    """A chat that may call its tool, but with valid arguments alone."""
    asked = asking(USER, **fields)
    (tool,) = map(json.loads, asked.chat.tools)
    tool["function"]["strict"] = True
    asked.chat.tools[:] = [json.dumps(tool)]
    return asked


async def test_calls_of_strict_tools_are_held_to_their_schema_in_the_midst_of_text(connect):
    verifier = scripted(HERMES)
    async with face(await connect([verifier])) as clients:
        answer = await collect(clients.generation.Generate(with_strict()))
        plain = await collect(clients.generation.Generate(asking(USER)))
    assert (answer.text, message(deltas(answer))) == (plain.text, message(deltas(plain)))
    first, last = verifier.requests[0], verifier.requests[-1]
    assert "start: call* tail" in first.sampling.grammar.ebnf
    assert not last.sampling.HasField("grammar")
    prompt = TOKENIZER.decode(list(first.prefix.token_ids))
    assert "get_weather" in prompt
    assert "strict" not in prompt  # the template doesn't get it


async def test_a_text_with_a_grammar_of_its_own_has_no_calls(connect):
    verifier = scripted(HERMES)
    sampling = {"temperature": 0, "grammar": {"regex": "(?s).*"}}
    async with face(await connect([verifier])) as clients:
        answer = await collect(clients.generation.Generate(with_strict(sampling=sampling)))
    assert verifier.requests[0].sampling.grammar.regex == "(?s).*"
    assert "get_weather" in answer.text
    assert not answer.started.has_deltas


async def test_a_strategy_without_grammars_names_what_is_strict(connect):
    asked = with_strict(speculation={"strategy": "filter"})
    async with face(await connect([scripted(HERMES)])) as clients:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await collect(clients.generation.Generate(asked))
    assert "excludes chat.tools[0].function.strict" in invalid_field(refused.value).reason


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        (HERMES, ['call: "<tool_call>"', "start: calls"]),
        (MISTRAL, [f"named: (<[{TOKENIZER.token_to_id('[TOOL_CALLS]')}]>", "start: calls"]),
        (THINKING, [f"<[{TOKENIZER.token_to_id('</think>')}]>", "start: rest calls"]),
    ],
    ids=["hermes", "mistral", "thinking"],
)
async def test_replicas_get_the_grammar_of_the_models_format(connect, source, rules):
    verifier = scripted(source)
    async with face(await connect([verifier])) as clients:
        await collect(clients.generation.Generate(forcing()))
    for call in verifier.requests:
        written = call.sampling.grammar.ebnf
        assert written.startswith('arguments_0: %json {"type": "object", "properties": {"city"')
        assert all(rule in written for rule in rules)


@pytest.mark.parametrize("source", [HERMES, THINKING], ids=["hermes", "thinking"])
@pytest.mark.parametrize("ask", [forcing, with_strict], ids=["forced", "strict"])
@pytest.mark.parametrize("num_chunks", [2, 9])
async def test_a_resumed_answer_keeps_its_grammar_and_its_format(
    connect, store_on, redis_server, source, ask, num_chunks
):
    verifier = scripted(source)
    store = store_on(redis_server.url)
    async with face(await connect([verifier]), store) as clients:
        whole = await collect(clients.generation.Generate(ask()))
        begun = await collect(clients.generation.Generate(ask()), num_chunks=num_chunks)
        resumed = await collect(
            clients.generation.Resume(resuming(begun)), begun=Answer(chunks=list(begun.chunks))
        )
    assert resumed.text == whole.text
    assert message(deltas(resumed)) == message(deltas(whole))
    assert len({call.sampling.grammar.ebnf for call in verifier.requests}) == 1


async def test_a_call_that_is_cut_off_before_its_arguments_is_no_content(
    connect, store_on, redis_server
):
    limited = {"stopping": {"max_tokens": 16}}
    store = store_on(redis_server.url)
    async with face(await connect([scripted(MISTRAL)]), store) as clients:
        whole = await collect(clients.generation.Generate(forcing(**limited)))
        begun = await collect(clients.generation.Generate(forcing(**limited)), num_chunks=9)
        resumed = await collect(
            clients.generation.Resume(resuming(begun)), begun=Answer(chunks=list(begun.chunks))
        )
        once = await clients.generation.Complete(
            generation_pb2.CompleteRequest(request=forcing(**limited))
        )
        free = await collect(clients.generation.Generate(asking(USER, **limited)))
    assert whole.text == resumed.text == once.chunk.text == '[TOOL_CALLS] [{"name": "get'
    assert [*deltas(whole), *deltas(resumed), *once.chunk.deltas] == []
    assert message(deltas(free)) == (free.text, [], "")


async def test_a_repeated_request_that_forces_calls_gets_the_same_message(
    connect, store_on, redis_server
):
    asked = forcing(request_id="thinking")
    async with face(await connect([scripted(THINKING)]), store_on(redis_server.url)) as clients:
        first = await collect(clients.generation.Generate(asked))
        again = await collect(clients.generation.Generate(asked))
    assert message(deltas(first))[2]
    assert message(deltas(again)) == message(deltas(first))


async def test_a_schema_that_replicas_refuse_is_the_callers_fault(connect):
    verifiers = [scripted(HERMES), scripted(HERMES)]
    for verifier in verifiers:
        wrong = InvalidField("sampling.grammar.ebnf", "line 1, column 14: Invalid type: strin")
        (verifier.always,) = raising(wrong)
    async with face(await connect(verifiers)) as clients:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await collect(clients.generation.Generate(forcing()))
    told = invalid_field(refused.value)
    assert (told.field, told.reason) == (
        *("chat.tools[0].function.parameters",),
        "Invalid type: strin",
    )


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"sampling": {"temperature": 0, "grammar": {"regex": "a"}}}, "chat.tool_choice"),
        ({"format": {"tool_calls": "none"}}, "chat.tool_choice"),
        ({"speculation": {"strategy": "filter"}}, "speculation.strategy"),
        ({"stopping": {"ignore_end_of_text": True}}, "stopping.ignore_end_of_text"),
    ],
    ids=str,
)
async def test_what_excludes_forced_calls_is_refused_by_name(connect, fields, field):
    async with face(await connect([scripted(HERMES)])) as clients:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await collect(clients.generation.Generate(forcing(**fields)))
    assert invalid_field(refused.value).field == field


async def test_replicas_that_follow_no_grammar_can_not_be_made_to_call(connect):
    verifier = scripted(HERMES)
    verifier.info.features[:] = features_but(model_pb2.MODEL_FEATURE_GRAMMARS)
    async with face(await connect([verifier])) as clients:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await collect(clients.generation.Generate(forcing()))
    assert error_info(refused.value).reason == "UNSUPPORTED_FEATURE"
