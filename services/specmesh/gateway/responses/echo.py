"""The texts of prompts, which precede the answers if a completion asks for an echo."""

from __future__ import annotations

import asyncio

from specmesh.client import AsyncClient
from specmesh.gateway.requests.completions import CompletionRequest


async def prompt_texts(client: AsyncClient, request: CompletionRequest) -> list[str]:
    """Return the prompt of each choice as text; nothing unless the request asks for an echo.

    Special tokens among token ids are written as the vocabulary spells them, since a text prompt
    would have to spell them, too. Raises SpecmeshError.
    """
    if not request.echo:
        return []

    async def text_of(prompt: str | list[int]) -> str:
        if isinstance(prompt, str):
            return prompt
        return await client.detokenize(prompt, keep_special_tokens=True, model=request.model)

    texts = await asyncio.gather(*map(text_of, request.prompts))
    return [text for text in texts for _ in range(request.n)]
