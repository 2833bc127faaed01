"""The streams: each asks, reads as its reader does, and asks again until time is up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

from specmesh.bench.chaos.answers import ChaosAnswer
from specmesh.bench.chaos.asks import Ask
from specmesh.client import Chunk, Client, GenerationStream, SpecmeshError

_AFTER_FAILURE_S = 1.0
"""A failure that comes at once is not to be counted a hundred times."""


class ChaosLoad:
    """``done`` is told of each answer that has ended, well or not."""

    def __init__(
        self, client: Client, began_s: float, done: Callable[[ChaosAnswer], Awaitable[None]]
    ) -> None:
        self._client = client
        self._began_s = began_s
        self._done = done
        self._open: dict[int, ChaosAnswer] = {}

    async def run(self, asks: list[Iterator[Ask]], until_s: float, grace_s: float) -> None:
        """A stream for each iterator; none begins an answer after ``until_s``, and what has not
        ended ``grace_s`` later has failed."""
        streams = [
            asyncio.create_task(self._stream(number, each, until_s))
            for number, each in enumerate(asks)
        ]
        try:
            timeout_s = self._began_s + until_s + grace_s - time.monotonic()
            _, stuck = await asyncio.wait(
                streams, timeout=timeout_s, return_when=asyncio.FIRST_EXCEPTION
            )
        finally:
            for stream in streams:
                stream.cancel()
            results = await asyncio.gather(*streams, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
        for answer in list(self._open.values()) if stuck else ():
            answer.failure = "stuck"
            answer.message = f"no end {grace_s:g} s after the last fault"
            await self._done(answer)

    async def _stream(self, number: int, asks: Iterator[Ask], until_s: float) -> None:
        for count, ask in enumerate(asks):
            if self._now_s() > until_s:
                return
            answer = ChaosAnswer(number, count, ask, began_s=self._now_s())
            self._open[number] = answer
            await self._ask(answer)
            del self._open[number]
            await self._done(answer)
            if answer.failure:
                await asyncio.sleep(_AFTER_FAILURE_S)

    async def _ask(self, answer: ChaosAnswer) -> None:
        stream = self._client.generate(answer.ask.prompt, **answer.ask.options)
        try:
            await self._read(stream, answer)
            if not answer.cancelled:
                _keep_result(stream, answer)
        except SpecmeshError as error:
            answer.failure = f"{type(error).__name__} {error.reason or error.code.name}"
            answer.message = str(error)
        except Exception as error:  # whatever the SDK lets through is a finding
            answer.failure = type(error).__name__
            answer.message = str(error)
        finally:
            answer.session_id = stream.session_id
            if not isinstance(answer.ask.prompt, str):
                answer.num_prompt_tokens = len(answer.ask.prompt)
            answer.ended_s = self._now_s()

    async def _read(self, stream: GenerationStream, answer: ChaosAnswer) -> None:
        ask, waits_since_s = answer.ask, self._now_s()
        stalled = False
        async with stream:
            async for chunk in stream:
                _absorb(chunk, answer)
                answer.last_token_s = self._now_s()
                pause_s = answer.last_token_s - waits_since_s
                if pause_s > answer.longest_pause_s:
                    answer.longest_pause_s, answer.paused_at_s = pause_s, waits_since_s
                num_tokens = len(answer.token_ids)
                if ask.cancel_after is not None and num_tokens > ask.cancel_after:
                    answer.cancelled = True
                    return
                if ask.stall_after is not None and num_tokens > ask.stall_after and not stalled:
                    stalled = True
                    await asyncio.sleep(ask.stall_s)
                waits_since_s = self._now_s()

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s


def _absorb(chunk: Chunk, answer: ChaosAnswer) -> None:
    place = len(answer.token_ids)
    answer.gap = answer.gap or chunk.first_index - place
    answer.token_ids += chunk.token_ids
    answer.unchecked |= {place + each for each in chunk.unchecked}
    answer.text += chunk.text


def _keep_result(stream: GenerationStream, answer: ChaosAnswer) -> None:
    result = stream.result
    answer.finish_reason = result.finish_reason
    answer.num_prompt_tokens = result.stats.num_prompt_tokens
    answer.num_resumes = result.num_resumes
    answer.resumable = result.resumable
