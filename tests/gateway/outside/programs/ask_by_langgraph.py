"""A LangGraph agent without tools: it remembers its conversation, gives its own answers back under
its name, and streams."""

import json
import sys
from importlib.metadata import version

from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

url, model = sys.argv[1:]
chat = ChatOpenAI(
    model=model, base_url=f"{url}/v1", api_key="any", temperature=0.8, seed=7, max_tokens=16
)
agent = create_agent(
    chat, tools=[], system_prompt="Write Python.", name="coder", checkpointer=InMemorySaver()
)


def config(thread):
    return {"configurable": {"thread_id": thread}}


def turn(thread, text):
    told = agent.invoke({"messages": [("user", text)]}, config(thread))
    return [(each.type, each.name, each.content) for each in told["messages"]]


first = turn("a", "def f(x):")
second = turn("a", "import os")
assert [(kind, name) for kind, name, _ in second] == [("human", None), ("ai", "coder")] * 2
assert second[:2] == first
assert second[1][2]
assert second[3][2]

turn("b", "def f(x):")
streamed = agent.stream({"messages": [("user", "import os")]}, config("b"), stream_mode="messages")
parts = [part.content for part, _ in streamed if isinstance(part, AIMessageChunk)]
assert len([part for part in parts if part]) > 1
assert "".join(parts) == second[3][2]
print(f"langgraph {version('langgraph')}:", json.dumps([content for _, _, content in second]))
