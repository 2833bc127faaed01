"""LangChain and LangGraph with tools: calls whole and streamed, and an agent that uses its tool."""

import json
import sys
from importlib.metadata import version

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

url, model = sys.argv[1:]


@tool
def get_weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"{20 + days} °C in {city}"


chat = ChatOpenAI(model=model, base_url=f"{url}/v1", api_key="any")
bound = chat.bind_tools([get_weather])
messages = [HumanMessage("Weather in Köln and Bonn?")]
whole = bound.invoke(messages)
asked = [call["args"] for call in whole.tool_calls]
assert asked == [{"city": "Köln", "days": 2}, {"city": "Bonn", "days": 2}], whole
assert whole.response_metadata["finish_reason"] == "tool_calls"

gathered = None
for part in bound.stream(messages):
    gathered = part if gathered is None else gathered + part
assert [call["args"] for call in gathered.tool_calls] == asked, gathered

results = [ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])
           for call in whole.tool_calls]  # fmt: skip
told = bound.invoke([*messages, whole, *results]).content
assert told == "It is 22 °C in Köln and 22 °C in Bonn.", told

one = chat.bind_tools([get_weather], parallel_tool_calls=False).invoke(messages)
assert [call["args"] for call in one.tool_calls] == asked[:1], one

agent = create_agent(chat, tools=[get_weather], system_prompt="Look it up.")
said = agent.invoke({"messages": messages})["messages"]
assert [each.type for each in said] == ["human", "ai", "tool", "tool", "ai"], said
assert said[-1].content == told
versions = {name: version(name) for name in ("langchain-openai", "langgraph")}
print(f"with tools {versions}:", json.dumps([asked, said[-1].content], ensure_ascii=False))
