"""Programs that speak OpenAI's Responses API, whole and streamed: LangChain, LiteLLM, and OpenAI's
Agents SDK with an agent without tools, which remembers what was said."""

import asyncio
import json
import sys
from importlib.metadata import version

import litellm
from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, set_tracing_disabled
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI

litellm.suppress_debug_info = True
set_tracing_disabled(disabled=True)
url, model = sys.argv[1:]
server = {"base_url": f"{url}/v1", "api_key": "any"}
rules, text = "Write Python.", "def f(x):"
messages = [("system", rules), ("user", text)]


def by_langchain() -> str:
    chat = ChatOpenAI(model=model, **server, max_tokens=16, temperature=0, use_responses_api=True)
    whole = chat.invoke(messages)
    parts = list(chat.stream(messages))
    assert "".join(part.text for part in parts) == whole.text
    total = whole.usage_metadata["total_tokens"]
    assert [part.usage_metadata for part in parts if part.usage_metadata][-1][
        "total_tokens"
    ] == total
    return whole.text


def by_litellm() -> str:
    asked = {"model": f"openai/{model}", "input": text, "instructions": rules, "temperature": 0}
    asked |= {"api_base": server["base_url"], "api_key": "any", "max_output_tokens": 16}
    whole = litellm.responses(**asked)
    parts = [
        each.delta
        for each in litellm.responses(**asked, stream=True)
        if each.type == "response.output_text.delta"
    ]
    assert "".join(parts) == whole.output_text
    return whole.output_text


async def by_agents() -> str:
    async with AsyncOpenAI(**server) as client:
        # The Agents SDK takes only answers that are complete, so a stop string ends this one.
        agent = Agent(
            name="coder",
            instructions=rules,
            model=OpenAIResponsesModel(model=model, openai_client=client),
            model_settings=ModelSettings(temperature=0, extra_body={"stop": "\n"}),
        )
        first = await Runner.run(agent, text)
        streamed = Runner.run_streamed(agent, text)
        async for _ in streamed.stream_events():
            pass
        assert streamed.final_output == first.final_output
        on = [*first.to_input_list(), {"role": "user", "content": "On."}]
        second = await Runner.run(agent, on)
        assert (
            second.raw_responses[0].usage.input_tokens > first.raw_responses[0].usage.total_tokens
        )
        return first.final_output


said = by_langchain()
assert said == by_litellm()
line = asyncio.run(by_agents())
assert line == said.partition("\n")[0] != ""
names = ("langchain-openai", "litellm", "openai-agents")
versions = ", ".join(f"{name} {version(name)}" for name in names)
print(f"responses by {versions}:", json.dumps([said, line]))
