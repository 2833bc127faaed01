"""The prompts that precede the answers if a completion asks for an echo."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from specmesh.client import AsyncClient, TextScore, TokenLogprob
from specmesh.gateway.requests.completions import CompletionRequest
from specmesh.gateway.responses.logprobs import Columns, of_completion, token_text

T = TypeVar("T")

PART_TOKENS = 256
"""Tokens of a prompt in one part of a stream if it has log-probabilities; the event loop needs some
milliseconds to write them."""
LOGPROB_BYTES = 32
"""The bytes that count as held for each log-probability of a prompt."""


@dataclass(frozen=True, slots=True)
class Echo:
    """The text of a prompt, and the log-probabilities of its tokens if the request asks for them:
    null for the first, which follows nothing."""

    text: str
    logprobs: Columns | None = None

    def parts(self) -> Iterator[Echo]:
        """Yield the echo in parts for a stream."""
        if self.logprobs is None:
            yield self
            return
        offsets = self.logprobs["text_offset"]
        starts = range(0, len(offsets), PART_TOKENS)
        ends = [*(offsets[start] for start in starts[1:]), len(self.text)]
        for start, end in zip(starts, ends, strict=True):
            columns = {
                name: column[start : start + PART_TOKENS] for name, column in self.logprobs.items()
            }
            yield Echo(self.text[offsets[start] : end], columns)


async def echoes(
    client: AsyncClient, request: CompletionRequest, hold: Callable[[int], None], timeout_s: float
) -> list[Echo]:
    """Return the prompt of each choice; nothing unless the request asks for an echo. ``hold`` is
    called with the bytes that the log-probabilities of a prompt take in all of its choices.

    Special tokens among token ids are written as the vocabulary spells them, since a text prompt
    would have to spell them, too. Raises SpecmeshError, and what ``hold`` raises.
    """
    if not request.echo:
        return []

    async def text_of(prompt: str | list[int]) -> str:
        if isinstance(prompt, str):
            return prompt
        return await client.detokenize(prompt, keep_special_tokens=True, model=request.model)

    async def score_of(prompt: str | list[int], num_top: int) -> TextScore:
        score = await client.score(
            prompt,
            num_top_logprobs=num_top,
            add_special_tokens=None if isinstance(prompt, list) else request.add_special_tokens,
            cache_salt=request.cache_salt or "",
            model=request.model,
            timeout_s=timeout_s,
        )
        hold(LOGPROB_BYTES * len(score.token_ids) * (num_top + 1) * request.n)
        return score

    async def echo_of(prompt: str | list[int]) -> Echo:
        text = await text_of(prompt)
        if request.logprobs is None:
            return Echo(text)
        score = await score_of(prompt, request.logprobs)
        # In a thread, since it takes microseconds for each of many log-probabilities.
        return Echo(text, await asyncio.to_thread(_columns, text, score))

    found = await together(map(echo_of, request.prompts))
    return [echo for echo in found for _ in range(request.n)]


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of ``work``, which runs concurrently. Raises the first error, after it has
    cancelled the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _columns(text: str, score: TextScore) -> Columns:
    """Return the log-probabilities of all tokens of ``text``."""
    rest = of_completion(score.logprobs)
    return {
        "tokens": [_first(text, score), *rest["tokens"]],
        "token_logprobs": [None, *rest["token_logprobs"]],
        "top_logprobs": [None, *rest["top_logprobs"]],
        "text_offset": [0, *rest["text_offset"]],
    }


def _first(text: str, score: TextScore) -> str:
    """Return the first token as text. A score doesn't tell its bytes: it is what stands before the
    second one, or the part of a character that later tokens complete; else it was added."""
    end = score.logprobs[0].text_offset if score.logprobs else len(text)
    if end:
        return text[:end]
    character = text[:1].encode()
    rest = b"".join(each.chosen.bytes for each in score.logprobs[: len(character)])
    parts = (
        character[:size] for size in range(1, len(character)) if rest.startswith(character[size:])
    )
    return token_text(TokenLogprob(score.token_ids[0], 0.0, next(parts, b"")))
