"""LangChain's models: chats whole and streamed, completions, tools for a model that has none."""

import json
import sys
from importlib.metadata import version

from langchain_openai import ChatOpenAI, OpenAI
from openai import BadRequestError

url, model = sys.argv[1:]
messages = [("system", "Write Python."), ("user", "def f(x):")]
server = {"model": model, "base_url": f"{url}/v1", "api_key": "any", "max_tokens": 16}
chat = ChatOpenAI(**server, temperature=0.8, seed=7)
whole = chat.invoke(messages)
parts = list(chat.stream(messages, stream_usage=True))
text = OpenAI(**server, temperature=0).invoke("def ")
assert "".join(part.content for part in parts) == whole.content != ""
assert 0 < whole.usage_metadata["output_tokens"] <= 16
totals = [part.usage_metadata["total_tokens"] for part in parts if part.usage_metadata]
assert totals == [whole.usage_metadata["total_tokens"]], totals
assert whole.response_metadata["finish_reason"] in {"stop", "length"}
assert text
tool = {"name": "look_up", "description": "Look it up.", "parameters": {"type": "object"}}
try:
    chat.bind_tools([tool]).invoke(messages)
except BadRequestError as refused:
    assert "does not show tools to the model" in refused.message, refused
else:
    raise AssertionError("tools were taken, and nothing done with them")
told = json.dumps([whole.content, whole.usage_metadata["total_tokens"], text])
print(f"langchain-openai {version('langchain-openai')}:", told)
