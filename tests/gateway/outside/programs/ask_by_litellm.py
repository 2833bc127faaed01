"""LiteLLM, which takes the gateway for OpenAI and for vLLM: chats whole and streamed, completions,
several at once, and tools for a model that has none."""

import asyncio
import json
import sys
from importlib.metadata import version

import litellm

litellm.suppress_debug_info = True
url, model = sys.argv[1:]
server = {"api_base": f"{url}/v1", "api_key": "any", "max_tokens": 16}
messages = [
    {"role": "system", "content": "Write Python."},
    {"role": "user", "content": "def f(x):"},
]
asked = {**server, "messages": messages, "temperature": 0.8, "seed": 7}
whole = litellm.completion(model=f"openai/{model}", **asked)
content = whole.choices[0].message.content
assert content
assert 0 < whole.usage.completion_tokens <= 16

options = {"include_usage": True}
parts = list(
    litellm.completion(model=f"openai/{model}", **asked, stream=True, stream_options=options)
)
assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == content
assert parts[-1].usage.total_tokens == whole.usage.total_tokens

# Its vLLM provider passes vLLM's own parameters on as they are.
neutral = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "skip_special_tokens": True}
as_vllm = litellm.completion(model=f"hosted_vllm/{model}", **asked, **neutral)
assert as_vllm.choices[0].message.content == content

text = litellm.text_completion(
    model=f"text-completion-openai/{model}", prompt="def ", temperature=0, **server
)
assert text.choices[0].text
assert text.usage.completion_tokens <= 16


async def at_once():
    calls = [litellm.acompletion(model=f"openai/{model}", **asked) for _ in range(4)]
    return [answer.choices[0].message.content for answer in await asyncio.gather(*calls)]


assert asyncio.run(at_once()) == [content] * 4
tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
try:
    litellm.completion(model=f"openai/{model}", **asked, tools=[tool])
except litellm.BadRequestError as refused:
    assert "does not show tools to the model" in str(refused), refused
else:
    raise AssertionError("tools were taken, and nothing done with them")
told = json.dumps([content, whole.usage.total_tokens, text.choices[0].text])
print(f"litellm {version('litellm')}:", told)
