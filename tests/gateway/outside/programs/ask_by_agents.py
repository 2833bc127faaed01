"""Agents of AutoGen, of OpenAI's own framework and of Pydantic AI, which use their tool, whole and
streamed."""

import asyncio
import json
import sys
from importlib.metadata import version

import agents
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

url, model = sys.argv[1:]
server = {"base_url": f"{url}/v1", "api_key": "any"}
question = "Weather in Köln and Bonn?"
answer = "It is 22 °C in Köln and 22 °C in Bonn."


def get_weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"{20 + days} °C in {city}"


async def autogen(*, streams):
    able = ("vision", "json_output", "structured_output")
    info = {**dict.fromkeys(able, False), "function_calling": True, "family": "unknown"}
    client = OpenAIChatCompletionClient(model=model, model_info=info, **server)
    agent = AssistantAgent(
        *("helper", client),
        tools=[get_weather],
        reflect_on_tool_use=True,
        model_client_stream=streams,
    )
    result = await agent.run(task=question)
    await client.close()
    return result.messages[-1].content


async def openai_agents(*, streams, kind=agents.OpenAIChatCompletionsModel):
    agents.set_tracing_disabled(True)
    async with AsyncOpenAI(**server) as client:
        agent = agents.Agent(
            name="helper",
            model=kind(model, client),
            tools=[agents.function_tool(get_weather)],
        )
        if not streams:
            return (await agents.Runner.run(agent, question)).final_output
        run = agents.Runner.run_streamed(agent, question)
        async for _ in run.stream_events():
            pass
        return run.final_output


async def openai_agents_by_responses(*, streams):
    return await openai_agents(streams=streams, kind=agents.OpenAIResponsesModel)


async def pydantic_ai(*, streams):
    agent = PydanticAgent(
        OpenAIChatModel(model, provider=OpenAIProvider(**server)), tools=[get_weather]
    )

    async def handle(_, events):
        async for _ in events:
            pass

    # Its run_stream takes the first text, beside the calls, for the answer.
    handler = handle if streams else None
    return (await agent.run(question, event_stream_handler=handler)).output


async def main():
    for ask in (autogen, openai_agents, openai_agents_by_responses, pydantic_ai):
        for streams in (False, True):
            told = await ask(streams=streams)
            assert told == answer, (ask.__name__, streams, told)


asyncio.run(main())
versions = {
    name: version(name) for name in ("autogen-agentchat", "openai-agents", "pydantic-ai-slim")
}
print(f"agents {versions}:", json.dumps(answer, ensure_ascii=False))
