"""The choices of a completion that asks for an echo of its prompts and for no tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from specmesh.client import AsyncClient, FinishReason, GenerationResult, GenerationStats
from specmesh.gateway.requests.completions import CompletionRequest
from specmesh.gateway.responses.answers import AnswerEnded, AnswerStreams, Event
from specmesh.gateway.responses.echo import together


class EchoAlone(AnswerStreams):
    """Choices without tokens, for which nothing is generated; ``num_tokens`` are those of each
    prompt."""

    def __init__(self, num_tokens: Sequence[int], request: CompletionRequest) -> None:
        super().__init__((), request.n, hold=lambda _: None)
        self._num_tokens = [each for each in num_tokens for _ in range(request.n)]
        self._model = request.model

    @property
    def num_answers(self) -> int:
        """The number of all answers."""
        return len(self._num_tokens)

    def num_prompt_tokens(self, number: int) -> int:
        """Return the number of tokens of the prompt of an answer."""
        return self._num_tokens[number]

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the end of each answer."""
        for number in range(self.num_answers):
            yield AnswerEnded(number, self._result(number))

    def _result(self, number: int) -> GenerationResult:
        return GenerationResult(
            text="",
            token_ids=(),
            finish_reason=FinishReason.LENGTH,
            stats=GenerationStats(self._num_tokens[number], 0, 0, 0, 0, 0, 0.0, 0.0),
            session_id="",
            epoch=0,
            model=self._model,
            strategy="",
            seed=0,
            resumable=False,
            num_resumes=0,
        )


async def echo_alone(client: AsyncClient, request: CompletionRequest) -> EchoAlone:
    """Return the choices of ``request``, whose usage counts the tokens of its prompts. Raises
    SpecmeshError."""

    async def count(prompt: str | list[int]) -> int:
        if isinstance(prompt, list):
            return len(prompt)
        special = request.add_special_tokens
        return len(await client.tokenize(prompt, add_special_tokens=special, model=request.model))

    return EchoAlone(await together(map(count, request.prompts)), request)
