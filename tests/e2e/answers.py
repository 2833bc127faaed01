"""Asking a mesh and reading what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from specmesh.client import AsyncClient, Chunk, GenerationResult

LONG: dict[str, Any] = {"max_tokens": 200, "ignore_end_of_text": True, "temperature": 0.0}
"""Long enough that something can happen after the first chunk and before the last."""


async def answer(client: AsyncClient, prompt: str, **options: Any) -> GenerationResult:
    """The whole answer."""
    stream = client.generate(prompt, **options)
    await stream
    return stream.result


async def disturbed(
    client: AsyncClient, prompt: str, disturb: Callable[[], Awaitable[None]], **options: Any
) -> GenerationResult:
    """The whole answer, with ``disturb`` run after its first chunk.

    Asserts that what the reader saw is what the result says, each token once.
    """
    stream = client.generate(prompt, **options)
    chunks: list[Chunk] = []
    async for chunk in stream:
        chunks.append(chunk)
        if len(chunks) == 1:
            assert len(chunk.token_ids) < options["max_tokens"]
            await disturb()
    seen = [token for chunk in chunks for token in chunk.token_ids]
    assert [chunk.first_index for chunk in chunks] == [
        sum(len(earlier.token_ids) for earlier in chunks[:number]) for number in range(len(chunks))
    ]
    assert tuple(seen) == stream.result.token_ids
    assert "".join(chunk.text for chunk in chunks) == stream.result.text
    return stream.result


async def all_of(*answers: Awaitable[GenerationResult]) -> list[GenerationResult]:
    """Several answers at once."""
    return list(await asyncio.gather(*answers))


def said(result: GenerationResult) -> tuple[tuple[int, ...], str]:
    """What must be equal between two ways to the same answer."""
    return result.token_ids, result.text
