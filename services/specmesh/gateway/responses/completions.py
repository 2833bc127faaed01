"""The response format of POST /v1/completions."""

from __future__ import annotations

from specmesh.client import Chunk, GenerationResult
from specmesh.gateway.responses.envelope import Json, extension, finish_reason
from specmesh.gateway.responses.logprobs import of_completion


class CompletionStyle:
    """The ``Style`` of completions."""

    prefix = "cmpl-"
    object = "text_completion"
    chunk_object = "text_completion"

    def whole(self, number: int, result: GenerationResult) -> Json:
        """Return a complete choice of a response."""
        logprobs = of_completion(result.logprobs) if result.logprobs else None
        return {
            "index": number,
            "text": result.text,
            "logprobs": logprobs,
            "finish_reason": finish_reason(result),
            **extension(result),
        }

    def first(self, number: int) -> None:
        """Return None, since nothing comes before the text."""

    def more(self, number: int, chunk: Chunk) -> Json | None:
        """Return the part of a stream that continues a choice; None if there is nothing to say."""
        if not chunk.text and not chunk.logprobs:
            return None
        logprobs = of_completion(chunk.logprobs) if chunk.logprobs else None
        return {"index": number, "text": chunk.text, "logprobs": logprobs, "finish_reason": None}

    def last(self, number: int, result: GenerationResult) -> Json:
        """Return the part of a stream that ends a choice."""
        ended = {"index": number, "text": "", "logprobs": None}
        return {**ended, "finish_reason": finish_reason(result), **extension(result)}
