"""The streams, each of which sends a request, reads the answer, and sends the next until time is
up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

from specmesh.bench.chaos.answers import ChaosAnswer
from specmesh.bench.chaos.requests import ChaosRequest
from specmesh.client import AsyncClient, Chunk, GenerationStream, SpecmeshError

_AFTER_FAILURE_S = 1.0
"""Pause after a failure, so that an immediate one isn't counted a hundred times."""


class ChaosLoad:
    """Runs the streams and calls ``done`` with each answer that has ended, in any way."""

    def __init__(
        self, client: AsyncClient, began_s: float, done: Callable[[ChaosAnswer], Awaitable[None]]
    ) -> None:
        self._client = client
        self._began_s = began_s
        self._done = done
        self._open: dict[int, ChaosAnswer] = {}

    async def run(
        self, requests: list[Iterator[ChaosRequest]], until_s: float, grace_s: float
    ) -> None:
        """Run a stream for each iterator. None begins an answer after ``until_s``; an answer that
        has not ended ``grace_s`` later has failed."""
        streams = [
            asyncio.create_task(self._stream(number, each, until_s))
            for number, each in enumerate(requests)
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
            answer.message = f"it did not end within {grace_s:g} s of the last fault"
            await self._done(answer)

    async def _stream(self, number: int, requests: Iterator[ChaosRequest], until_s: float) -> None:
        for count, request in enumerate(requests):
            if self._now_s() > until_s:
                return
            answer = ChaosAnswer(number, count, request, began_s=self._now_s())
            self._open[number] = answer
            await self._send(answer)
            del self._open[number]
            await self._done(answer)
            if answer.failure:
                await asyncio.sleep(_AFTER_FAILURE_S)

    async def _send(self, answer: ChaosAnswer) -> None:
        stream = self._client.generate(answer.request.prompt, **answer.request.options)
        try:
            await self._read(stream, answer)
            if not answer.cancelled:
                _keep_result(stream, answer)
        except SpecmeshError as error:
            answer.failure = f"{type(error).__name__} {error.reason or error.code.name}"
            answer.message = str(error)
        except Exception as error:  # An unmapped error from the SDK is a finding.
            answer.failure = type(error).__name__
            answer.message = str(error)
        finally:
            answer.session_id = stream.session_id
            if not isinstance(answer.request.prompt, str):
                answer.num_prompt_tokens = len(answer.request.prompt)
            answer.ended_s = self._now_s()

    async def _read(self, stream: GenerationStream, answer: ChaosAnswer) -> None:
        request, waits_since_s = answer.request, self._now_s()
        stalled = False
        async with stream:
            async for chunk in stream:
                _absorb(chunk, answer)
                answer.last_token_s = self._now_s()
                pause_s = answer.last_token_s - waits_since_s
                if pause_s > answer.longest_pause_s:
                    answer.longest_pause_s, answer.paused_at_s = pause_s, waits_since_s
                num_tokens = len(answer.token_ids)
                if request.cancel_after is not None and num_tokens > request.cancel_after:
                    answer.cancelled = True
                    return
                stall_after = None if stalled else request.stall_after
                if stall_after is not None and num_tokens > stall_after:
                    stalled = True
                    await asyncio.sleep(request.stall_s)
                waits_since_s = self._now_s()

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s


def _absorb(chunk: Chunk, answer: ChaosAnswer) -> None:
    position = len(answer.token_ids)
    answer.gap = answer.gap or chunk.first_index - position
    answer.token_ids += chunk.token_ids
    answer.unchecked |= {position + each for each in chunk.unchecked}
    answer.text += chunk.text


def _keep_result(stream: GenerationStream, answer: ChaosAnswer) -> None:
    result = stream.result
    answer.finish_reason = result.finish_reason
    answer.num_prompt_tokens = result.stats.num_prompt_tokens
    answer.num_resumes = result.num_resumes
    answer.resumable = result.resumable
