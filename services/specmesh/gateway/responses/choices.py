"""The replies of the two calls whose answers are choices: completions and chats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specmesh.client import GenerationResult
from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.request import Request
from specmesh.gateway.responses.answers import AnswerEnded, AnswerStreams, Said
from specmesh.gateway.responses.envelope import Envelope, Json, Style, usage, usage_so_far


class ChoicesReply:
    """The ``Reply`` of completions and chats, whose choices are written in ``style``. ``told`` is
    what a whole response has beside them."""

    end_mark = "[DONE]"

    def __init__(
        self, style: Style, asked: Request, answers: AnswerStreams, told: Json | None = None
    ) -> None:
        self._style = style
        self._asked = asked
        self._answers = answers
        self._told = told or {}
        self._envelope = Envelope(style, asked.model)

    def whole(self, results: Sequence[GenerationResult]) -> Json:
        """Return the response with all choices."""
        counted = usage(results, self._answers.num_candidates)
        return {**self._envelope.response(self._answers.choices(results), counted), **self._told}

    def begin(self) -> Iterator[Json]:
        """Return the parts that begin each choice, if the style has any."""
        for number in range(self._answers.num_answers):
            for first in self._style.begin(number):
                yield {**self._envelope.part([first]), **self._usage(number, 0)}

    def more(self, said: Said) -> Iterator[Json]:
        """Return the part with a choice's next text."""
        number, chunk = said.number, said.chunk
        if (more := self._style.more(number, chunk)) is not None:
            num_tokens = chunk.first_index + len(chunk.token_ids)
            yield {**self._envelope.part([more]), **self._usage(number, num_tokens)}

    def end(self, ended: AnswerEnded) -> Iterator[Json]:
        """Return the part that ends a choice."""
        number, result = ended.number, ended.result
        part = self._envelope.part([self._style.last(number, result)], result)
        yield {**part, **self._usage(number, result.stats.num_output_tokens)}

    def finish(self, results: Sequence[GenerationResult]) -> Iterator[Json]:
        """Return the part about the usage of all choices, if it is asked for."""
        if self._asked.include_usage:
            yield {**self._envelope.part([]), "usage": usage(results, self._answers.num_candidates)}

    def fail(self, error: ApiError) -> Iterator[Json]:
        """Return the error."""
        yield error.body

    def _usage(self, number: int, num_tokens: int) -> Json:
        """Return the field ``usage`` of a part of choice ``number`` at ``num_tokens``."""
        if not self._asked.include_usage:
            return {}
        if not self._asked.includes_running_usage:
            return {"usage": None}
        return {"usage": usage_so_far(self._answers.num_prompt_tokens(number), num_tokens)}
