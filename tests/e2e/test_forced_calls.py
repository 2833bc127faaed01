"""Calls that are forced, on real processes: the shipped pair, which knows no tools, calls them as
each format has it, and says the same with speculation as the target alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import jsonschema
import openai
import pytest
import pytest_asyncio
from tests.e2e.answers import all_of, said
from tests.e2e.processes import Process, Processes
from tests.orchestrator.tool_templates import THINKING

from specmesh import models
from specmesh.client import AsyncClient, GenerationResult, InvalidRequest, ToolChoice

SCHEMAS = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 8},
            "days": {"$ref": "#/$defs/days"},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
        "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 14}},
    },
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
BAD = {
    "type": "function",
    "function": {"name": "f", "parameters": {"properties": {"a": {"type": "strin"}}}},
}
FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]
WEATHER = {"type": "function", "function": {"name": "get_weather"}}
MESSAGES = [{"role": "user", "content": "Weather in Köln?"}]
STRATEGIES: list[dict[str, Any]] = [
    {"strategy": "autoregressive"},
    {"strategy": "speculative"},
    {"strategy": "tree", "width": 6},
    {"strategy": "dsi"},
]
ONE = ToolChoice(single_call=True)


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, Process]]:
    """A verifier and a drafter, whose prompts begin the reasoning of an answer."""
    file = tmp_path_factory.mktemp("chat") / "template.jinja"
    file.write_text(THINKING, encoding="utf-8")
    with Processes() as own:
        yield own.verifier("--chat-template", str(file)), own.drafter()


@pytest.fixture(scope="module", params=["hermes", "llama3", "mistral"])
def orchestrator(
    request: pytest.FixtureRequest, replicas: tuple[Process, Process]
) -> Iterator[Process]:
    """It takes the model for one that writes calls in this format, and that doesn't reason."""
    verifier, drafter = replicas
    flags = ("--tool-format", request.param, "--reasoning-format", "none")
    with Processes() as own:
        yield own.orchestrator([verifier], [drafter], *flags)


@pytest_asyncio.fixture
async def client(orchestrator: Process) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(orchestrator.address) as connected:
        yield connected


async def ask(client: AsyncClient, **options: Any) -> GenerationResult:
    stream = client.chat(MESSAGES, tools=TOOLS, max_tokens=128, **options)
    await stream
    return stream.result


def check(calls: Any) -> list[str]:
    """The names of what is called; all arguments are valid."""
    for call in calls:
        jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
    return [call.name for call in calls]


@pytest.mark.parametrize(
    ("choice", "sampling"),
    [
        (ONE, {"temperature": 0}),
        (ToolChoice(["get_weather"], single_call=True), {"seed": 3}),
        (ToolChoice(["now"], single_call=True), {"seed": 4, "acceptance_mode": "rejection"}),
    ],
)
async def test_calls_are_valid_and_the_same_with_every_strategy(client, choice, sampling):
    results = await all_of(
        *(ask(client, tool_choice=choice, **sampling, **each) for each in STRATEGIES)
    )
    for result in results:
        (name,) = check(result.message.tool_calls)
        assert name in (choice.names or SCHEMAS)
        assert (result.message.content, result.finish_reason) == ("", "end_of_text")
    if "acceptance_mode" not in sampling:
        assert len({*map(said, results)}) == 1


async def test_strict_tools_leave_text_free_and_the_same_with_every_strategy(client):
    strict = [
        {"type": "function", "function": {**tool["function"], "strict": True}} for tool in TOOLS
    ]
    asked = {"max_tokens": 48, "temperature": 0}
    held = await all_of(
        *(client.chat(MESSAGES, tools=strict, **asked, **each) for each in STRATEGIES)
    )
    free = await client.chat(MESSAGES, tools=TOOLS, **asked)
    assert {*map(said, held)} == {said(free)}


async def test_several_calls_may_come(client):
    result = await ask(client, tool_choice=ToolChoice(["now"]), seed=1)
    calls = result.message.tool_calls
    assert {call.name for call in calls} == {"now"}
    if result.finish_reason == "end_of_text":  # otherwise the last one is cut off
        assert check(calls)
        assert result.message.content == ""


async def test_chats_of_the_gateway_call_what_they_must(gateway):
    asked: dict[str, Any] = {"model": models.TARGET, "messages": MESSAGES, "tools": TOOLS}
    asked |= {"tool_choice": WEATHER, "temperature": 0}
    whole = (await gateway.chat.completions.create(**asked)).choices[0]
    (call,) = whole.message.tool_calls
    assert (whole.finish_reason, whole.message.content) == ("tool_calls", None)
    assert check([call.function]) == ["get_weather"]
    async with gateway.chat.completions.stream(**asked) as stream:
        (streamed,) = (await stream.get_final_completion()).choices[0].message.tool_calls
    assert streamed.function.arguments == call.function.arguments


async def test_a_call_that_is_cut_off_before_its_arguments_is_no_content(gateway):
    asked: dict[str, Any] = {"model": models.TARGET, "messages": MESSAGES, "tools": TOOLS}
    asked |= {"tool_choice": "required", "max_tokens": 3, "temperature": 0}
    (choice,) = (await gateway.chat.completions.create(**asked)).choices
    assert (choice.finish_reason, choice.message.content) == ("length", "")
    parts = [part async for part in await gateway.chat.completions.create(**asked, stream=True)]
    assert not any(choice.delta.content for part in parts for choice in part.choices)


async def test_responses_of_the_gateway_call_what_they_must(gateway):
    asked: dict[str, Any] = {"model": models.TARGET, "input": "Weather?", "tools": FLAT}
    asked |= {"tool_choice": "required", "parallel_tool_calls": False, "temperature": 0}
    (call,) = (await gateway.responses.create(**asked)).output
    assert check([call])
    events = [event async for event in await gateway.responses.create(**asked, stream=True)]
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments
    (streamed,) = events[-1].response.output
    assert (streamed.name, streamed.arguments) == (call.name, call.arguments)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "12 °C"}
    said = [{"role": "user", "content": "Weather?"}, call, result]
    again = {**asked, "input": said, "tool_choice": "auto", "max_output_tokens": 4}
    assert (await gateway.responses.create(**again)).output_text


async def test_a_schema_that_can_not_be_compiled_is_refused_with_the_compilers_words(
    client, gateway
):
    for strategy in ("speculative", "dsi"):
        with pytest.raises(InvalidRequest) as raised:
            await client.chat(MESSAGES, tools=[*TOOLS, BAD], tool_choice=ONE, strategy=strategy)
        (violation,) = raised.value.field_violations
        assert violation.field == "chat.tools[2].function.parameters"
        assert violation.description == "Invalid type: strin"
    with pytest.raises(openai.BadRequestError) as refused:
        await gateway.chat.completions.create(
            model=models.TARGET, messages=MESSAGES, tools=[BAD], tool_choice="required"
        )
    assert refused.value.param == "tools[0].function.parameters"
    assert "Invalid type: strin" in refused.value.message


async def test_a_model_that_reasons_does_so_before_it_calls(replicas):
    verifier, drafter = replicas
    with Processes() as own:
        orchestrator = own.orchestrator([verifier], [drafter])
        async with AsyncClient(orchestrator.address) as client:
            results = await all_of(
                *(ask(client, tool_choice=ONE, temperature=0, **each) for each in STRATEGIES)
            )
    assert len({*map(said, results)}) == 1
    message = results[0].message
    assert message.reasoning_content
    assert message.content == ""
