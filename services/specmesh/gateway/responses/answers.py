"""The mesh's answers to a request: one stream for each choice of each prompt, concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from specmesh.client import AsyncClient, Chunk, GenerationResult, GenerationStream
from specmesh.gateway.requests.chats import ChatRequest
from specmesh.gateway.requests.completions import CompletionRequest
from specmesh.gateway.responses.candidates import likeliest

WHOLE_INTERVAL_S = 0.25
"""The shortest time between two chunks of an answer whose caller gets it whole."""
QUEUED = 16
"""The number of chunks buffered for a slow client before back-pressure reaches the mesh."""
LOGPROB_BYTES = 128
"""The bytes that count as held for each log-probability of an answer. With its description in a
reply and the JSON of that it takes some 700, six times as many (``--max-held-bytes``)."""

Hold = Callable[[int], None]
"""Holds bytes of an answer. May raise ``ApiError``."""


@dataclass(frozen=True, slots=True)
class Said:
    """A chunk of the answer with this number."""

    number: int
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class AnswerEnded:
    """The answer with this number is complete."""

    number: int
    result: GenerationResult


Event = Said | AnswerEnded


class AnswerStreams:
    """The answers to one request. ``streams`` are numbered prompt by prompt, ``num_candidates`` for
    the choices of each. ``hold`` is called with the bytes of their log-probabilities as these come.
    """

    def __init__(
        self, streams: Sequence[GenerationStream], num_candidates: int, hold: Hold
    ) -> None:
        self.streams = streams
        self.num_candidates = num_candidates
        self._hold = hold

    @property
    def num_answers(self) -> int:
        """The number of all answers."""
        return len(self.streams)

    def num_prompt_tokens(self, number: int) -> int | None:
        """Return the number of tokens of the prompt of an answer; None before it has begun."""
        return self.streams[number].num_prompt_tokens

    def choices(self, results: Sequence[GenerationResult]) -> Sequence[GenerationResult]:
        """Return the answers that the caller gets, of all ``results``."""
        return results

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the events of all answers as they come. Closing the iterator cancels the answers.

        Raises the SpecmeshError of the first answer that fails, or what ``hold`` raises for it, and
        cancels the others.
        """
        queue: asyncio.Queue[Event | Exception] = asyncio.Queue(QUEUED)
        readers = [
            asyncio.create_task(self._read(number, stream, queue))
            for number, stream in enumerate(self.streams)
        ]
        num_running = len(readers)
        try:
            while num_running:
                event = await queue.get()
                if isinstance(event, Exception):
                    raise event
                num_running -= isinstance(event, AnswerEnded)
                yield event
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def whole(self) -> list[GenerationResult]:
        """Return all answers once they are complete. Raises as ``events`` does."""
        async with aclosing(self.events()) as events:
            ended = {
                each.number: each.result async for each in events if isinstance(each, AnswerEnded)
            }
        return [ended[number] for number in range(self.num_answers)]

    async def _read(
        self, number: int, stream: GenerationStream, queue: asyncio.Queue[Event | Exception]
    ) -> None:
        try:
            async with stream:
                async for chunk in stream:
                    if chunk.logprobs:
                        num_logprobs = sum(1 + len(each.top) for each in chunk.logprobs)
                        self._hold(LOGPROB_BYTES * num_logprobs)
                    await queue.put(Said(number, chunk))
            await queue.put(AnswerEnded(number, stream.result))
        except Exception as error:
            await queue.put(error)


class Candidates(AnswerStreams):
    """The answers of which the caller gets the likeliest."""

    def __init__(
        self, streams: Sequence[GenerationStream], request: CompletionRequest, hold: Hold
    ) -> None:
        super().__init__(streams, request.num_candidates, hold)
        self._request = request

    def choices(self, results: Sequence[GenerationResult]) -> Sequence[GenerationResult]:
        """Return the likeliest answers to each prompt."""
        asked = self._request
        keep = asked.logprobs is not None
        return likeliest(results, asked.num_candidates, asked.n, keep_logprobs=keep)


def complete(
    client: AsyncClient, request: CompletionRequest, timeout_s: float, hold: Hold
) -> AnswerStreams:
    """Return the answers to a completion request; reading them starts the calls."""
    wanted = [prompt for prompt in request.prompts for _ in range(request.num_candidates)]
    streams = [
        client.generate(
            prompt,
            **request.keywords(number, len(wanted)),
            max_tokens=request.token_limit,
            num_top_logprobs=(request.logprobs or 0) if request.compares else request.logprobs,
            add_special_tokens=None if isinstance(prompt, list) else request.add_special_tokens,
            chunk_interval_s=_chunk_interval_s(request),
            timeout_s=timeout_s,
        )
        for number, prompt in enumerate(wanted)
    ]
    if request.compares:
        return Candidates(streams, request, hold)
    return AnswerStreams(streams, request.n, hold)


def chat(client: AsyncClient, request: ChatRequest, timeout_s: float, hold: Hold) -> AnswerStreams:
    """Return the answers to a chat request; reading them starts the calls."""
    messages = [message.spoken for message in request.messages]
    streams = [
        client.chat(
            messages,
            **request.keywords(number, request.n),
            **request.chat_keywords,
            max_tokens=request.token_limit,
            num_top_logprobs=request.num_top_logprobs,
            chunk_interval_s=_chunk_interval_s(request),
            timeout_s=timeout_s,
        )
        for number in range(request.n)
    ]
    return AnswerStreams(streams, request.n, hold)


def _chunk_interval_s(request: CompletionRequest | ChatRequest) -> float | None:
    """Return the interval between chunks: None, for no wish, if the caller reads them."""
    return None if request.stream else WHOLE_INTERVAL_S
