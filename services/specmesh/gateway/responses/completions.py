"""The response format of POST /v1/completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specmesh.client import Chunk, GenerationResult
from specmesh.gateway.responses.echo import Echo
from specmesh.gateway.responses.envelope import Json, extension, finish_reason
from specmesh.gateway.responses.logprobs import joined, of_completion
from specmesh.gateway.responses.prompt_scores import PromptLogprobs


class CompletionStyle:
    """The ``Style`` of completions. ``echoed`` has the prompt to precede each choice, or nothing;
    ``scores`` has the log-probabilities of the tokens of each choice's prompt, or nothing."""

    prefix = "cmpl-"
    object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, echoed: Sequence[Echo], scores: Sequence[PromptLogprobs] = ()) -> None:
        self._echoed = echoed
        self._scores = scores

    def whole(self, number: int, result: GenerationResult) -> Json:
        """Return a complete choice of a response."""
        logprobs = of_completion(result.logprobs) if result.logprobs else None
        text = result.text
        if self._echoed:
            echo = self._echoed[number]
            text = echo.text + text
            logprobs = joined(echo.logprobs, logprobs, len(echo.text))
        scored = {"prompt_logprobs": self._scores[number]} if self._scores else {}
        return {
            "index": number,
            "text": text,
            "logprobs": logprobs,
            **scored,
            "finish_reason": finish_reason(result),
            "stop_reason": result.stop_reason,
            **extension(result),
        }

    def begin(self, number: int) -> Iterator[Json]:
        """Yield the parts of a stream that echo a choice's prompt."""
        for echo in self._echoed[number].parts() if self._echoed else ():
            told = {"text": echo.text, "logprobs": echo.logprobs}
            yield {"index": number, **told, "finish_reason": None}

    def more(self, number: int, chunk: Chunk) -> Json | None:
        """Return the part of a stream that continues a choice; None if there is nothing to say."""
        if not chunk.text and not chunk.logprobs:
            return None
        logprobs = of_completion(chunk.logprobs) if chunk.logprobs else None
        if self._echoed:
            logprobs = joined(None, logprobs, len(self._echoed[number].text))
        return {"index": number, "text": chunk.text, "logprobs": logprobs, "finish_reason": None}

    def last(self, number: int, result: GenerationResult) -> Json:
        """Return the part of a stream that ends a choice."""
        ended = {"index": number, "text": "", "logprobs": None}
        reasons = {"finish_reason": finish_reason(result), "stop_reason": result.stop_reason}
        return {**ended, **reasons, **extension(result)}
