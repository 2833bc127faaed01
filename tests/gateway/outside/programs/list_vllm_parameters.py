"""Print vLLM's parameters of both calls and their defaults, as JSON."""

import json
import sys

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest

messages = [{"role": "user", "content": "def f(x):"}]
told = {
    "/v1/completions": CompletionRequest(model=sys.argv[1], prompt="def ").model_dump(mode="json"),
    "/v1/chat/completions": ChatCompletionRequest(model=sys.argv[1], messages=messages).model_dump(
        mode="json"
    ),
}
print(json.dumps(told))
