"""Agents on real processes: a model that calls tools, by the SDK and by OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
import pytest_asyncio
from tests.e2e.processes import Process, Processes
from tests.orchestrator.tool_templates import HERMES, MISTRAL, THINKING
from tests.tool_model import TOKENIZER, TOOLS, arguments

from specmesh.client import AsyncClient, ChatMessage, SavedSession

TEMPLATES = {"hermes": HERMES, "mistral": MISTRAL, "thinking": THINKING}
QUESTION = {"role": "user", "content": "Weather in Köln and Bonn?"}
ARGUMENTS = [arguments("Köln"), arguments("Bonn")]
ANSWER = "It is 21 °C in Köln and 22 °C in Bonn."


def weather(call_arguments: str, degrees: int) -> str:
    return f"{degrees} °C in {json.loads(call_arguments)['city']}"


@pytest.fixture(scope="module", params=TEMPLATES)
def template(request: pytest.FixtureRequest) -> str:
    """The name of the model's chat template."""
    return str(request.param)


@pytest.fixture(scope="module")
def orchestrator(template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Drafts are copied from the prompt, so that several tokens of a call come at once."""
    folder = tmp_path_factory.mktemp("tokenizer")
    TOKENIZER.save(str(folder / "tokenizer.json"))
    with Processes() as own:
        verifier = own.scripted_verifier(TEMPLATES[template])
        drafter = own.drafter("--backend", "prompt-lookup", "--tokenizer", str(folder))
        yield own.orchestrator([verifier], [drafter])


@pytest_asyncio.fixture
async def client(orchestrator: Process) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(orchestrator.address) as connected:
        yield connected


async def whole(gateway: openai.AsyncOpenAI, messages: list[Any]) -> Any:
    asked = {"model": "scripted", "messages": messages, "tools": TOOLS}
    return (await gateway.chat.completions.create(**asked)).choices[0]


async def streamed(gateway: openai.AsyncOpenAI, messages: list[Any]) -> Any:
    """The same, put together by OpenAI's client."""
    asked = {"model": "scripted", "messages": messages, "tools": TOOLS}
    async with gateway.chat.completions.stream(**asked) as stream:
        return (await stream.get_final_completion()).choices[0]


@pytest.mark.parametrize("ask", [whole, streamed])
async def test_an_agent_gets_its_answer_by_way_of_its_tools(gateway, ask):
    messages: list[Any] = [QUESTION]
    calling = await ask(gateway, messages)
    assert calling.finish_reason == "tool_calls"
    calls = calling.message.tool_calls
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("get_weather", written) for written in ARGUMENTS
    ]
    messages.append(calling.message)
    for degrees, call in enumerate(calls, start=21):
        result = weather(call.function.arguments, degrees)
        messages.append({"role": "tool", "content": result, "tool_call_id": call.id})
    answer = await ask(gateway, messages)
    assert (answer.finish_reason, answer.message.content) == ("stop", ANSWER)
    assert answer.message.tool_calls is None


MISTAKE = '{"city": "Kö'


async def test_an_agent_goes_on_after_arguments_that_are_no_json(gateway):
    said = (await whole(gateway, [QUESTION])).message
    said.tool_calls[0].function.arguments = MISTAKE
    results = [
        {"role": "tool", "content": "no JSON", "tool_call_id": call.id} for call in said.tool_calls
    ]
    answer = await whole(gateway, [QUESTION, said, *results])
    assert answer.message.content == "It is no JSON and no JSON."


async def test_an_agent_of_responses_goes_on_after_arguments_that_are_no_json(gateway):
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    asked: dict[str, Any] = {"model": "scripted", "tools": tools}
    said = (await gateway.responses.create(**asked, input=[QUESTION])).output
    calls = [item for item in said if item.type == "function_call"]
    calls[0].arguments = MISTAKE
    results = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "no JSON"}
        for call in calls
    ]
    answer = await gateway.responses.create(**asked, input=[QUESTION, *said, *results])
    assert answer.output_text == "It is no JSON and no JSON."


async def test_a_stream_is_the_same_in_pieces(gateway):
    stream = await gateway.chat.completions.create(
        model="scripted", messages=[QUESTION], tools=TOOLS, stream=True
    )
    written: dict[int, str] = {}
    names = []
    async for part in stream:
        for call in part.choices[0].delta.tool_calls or ():
            if call.function.name:
                assert call.id
                assert call.index not in written
                names.append(call.function.name)
            written[call.index] = written.get(call.index, "") + call.function.arguments
    assert (names, list(written.values())) == (["get_weather"] * 2, ARGUMENTS)


async def test_the_sdk_has_the_models_message_for_the_next_turn(client, template):
    messages: list[Any] = [QUESTION]
    stream = client.chat(messages, tools=TOOLS, strategy="speculative", lookahead=4)
    calls = [delta.tool_call async for chunk in stream for delta in chunk.deltas if delta.tool_call]
    assert stream.result.stats.num_accepted_tokens
    said = stream.result.message
    assert [call.arguments for call in said.tool_calls] == ARGUMENTS
    assert "".join(call.arguments for call in calls) == "".join(ARGUMENTS)
    assert said.reasoning_content == ("hm, hm" if template == "thinking" else "")
    messages.append(said)
    for degrees, call in enumerate(said.tool_calls, start=21):
        result = weather(call.arguments, degrees)
        messages.append(ChatMessage("tool", result, tool_call_id=call.id))
    assert (await client.chat(messages, tools=TOOLS)).message.content == ANSWER


async def test_an_answer_that_is_carried_on_elsewhere_keeps_its_message(client, orchestrator):
    expected = (await client.chat([QUESTION], tools=TOOLS, seed=5)).message
    stream = client.chat([QUESTION], tools=TOOLS, seed=5)
    async for _ in stream:
        if len(stream.token_ids) > 70:
            break
    saved = SavedSession.from_json(stream.session.to_json())
    await stream.aclose()
    async with AsyncClient(orchestrator.address) as other:
        assert (await other.resume(saved)).message == expected


async def test_a_model_says_how_it_writes(client, gateway, template):
    (model,) = await client.list_models()
    (listed,) = (await gateway.models.list()).data
    assert model.reasoning_format == ("think" if template == "thinking" else "none")
    assert model.tool_format == ("mistral" if template == "mistral" else "hermes")
    assert listed.model_extra["specmesh"]["tool_format"] == model.tool_format
