"""The response format of POST /v1/chat/completions."""

from __future__ import annotations

from specmesh.client import Chunk, GenerationResult
from specmesh.gateway.responses import logprobs
from specmesh.gateway.responses.envelope import Json, extension, finish_reason


class ChatStyle:
    """The ``Style`` of chats."""

    prefix = "chatcmpl-"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def whole(self, number: int, result: GenerationResult) -> Json:
        """Return a complete choice of a response."""
        message = {"role": "assistant", "content": result.text, "refusal": None}
        return {
            "index": number,
            "message": message,
            "logprobs": logprobs.of_chat(result.logprobs) if result.logprobs else None,
            "finish_reason": finish_reason(result),
            **extension(result),
        }

    def first(self, number: int) -> Json:
        """Return the part of a stream that begins a choice with the role."""
        return self._part(number, {"role": "assistant", "content": ""})

    def more(self, number: int, chunk: Chunk) -> Json:
        """Return the part of a stream that continues a choice."""
        part = self._part(number, {"content": chunk.text})
        return {**part, "logprobs": logprobs.of_chat(chunk.logprobs)} if chunk.logprobs else part

    def last(self, number: int, result: GenerationResult) -> Json:
        """Return the part of a stream that ends a choice."""
        part = self._part(number, {})
        return {**part, "finish_reason": finish_reason(result), **extension(result)}

    def _part(self, number: int, delta: Json) -> Json:
        return {"index": number, "delta": delta, "logprobs": None, "finish_reason": None}
