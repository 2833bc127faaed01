"""Batches of answers with limited concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from specmesh.client.answers.stream import GenerationStream
from specmesh.client.answers.values import GenerationResult
from specmesh.client.connections.arguments import check_count
from specmesh.client.errors import SpecmeshError
from specmesh.client.requests.build import Prompt


async def answer_all(
    prompts: Iterable[Prompt], generate: Callable[[Prompt], GenerationStream], concurrency: int
) -> list[GenerationResult | SpecmeshError]:
    """Return for each of ``prompts``, in their order, the result of `generate` or its error.

    At most ``concurrency`` requests run concurrently; ``prompts`` are read lazily. Raises
    TypeError or ValueError for a concurrency that is no whole number from 1, TypeError for prompts
    that are one text, and what `generate` raises before its first call.
    """
    if isinstance(prompts, str | bytes):  # would be read as a sequence of characters
        raise TypeError("prompts: expected a sequence of prompts, got one string")
    check_count("concurrency", concurrency, least=1)
    waiting = enumerate(prompts)
    answers: dict[int, GenerationResult | SpecmeshError] = {}

    async def work() -> None:
        for number, prompt in waiting:
            try:
                answers[number] = await generate(prompt)
            except SpecmeshError as error:
                answers[number] = error

    workers = [asyncio.create_task(work()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [answers[number] for number in sorted(answers)]
