"""Print vLLM's parameters of the calls that we have, too, and their defaults, as JSON."""

import json
import sys

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.serve.tokenize.protocol import (
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
)

model, text = sys.argv[1], "def f(x):"
messages = [{"role": "user", "content": text}]
requests = (
    ("/v1/completions", CompletionRequest(model=model, prompt=text)),
    ("/v1/chat/completions", ChatCompletionRequest(model=model, messages=messages)),
    ("/v1/responses", ResponsesRequest(model=model, input=text)),
    ("/tokenize", TokenizeCompletionRequest(model=model, prompt=text)),
    ("/tokenize", TokenizeChatRequest(model=model, messages=messages)),
    ("/detokenize", DetokenizeRequest(model=model, tokens=[1, 2])),
)
print(json.dumps([(path, request.model_dump(mode="json")) for path, request in requests]))
