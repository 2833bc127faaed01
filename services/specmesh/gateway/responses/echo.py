"""The prompts that precede the answers if a completion asks for an echo."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from specmesh.client import AsyncClient, TextScore
from specmesh.gateway.requests.completions import CompletionRequest
from specmesh.gateway.responses.logprobs import Columns, of_completion


@dataclass(frozen=True, slots=True)
class Echo:
    """The text of a prompt, and its likelihood if the request asks for log-probabilities."""

    text: str
    score: TextScore | None = None

    @property
    def logprobs(self) -> Columns | None:
        """The log-probabilities of the prompt's tokens, null for the first, which follows
        nothing."""
        if self.score is None:
            return None
        rest = of_completion(self.score.logprobs)
        end = self.score.logprobs[0].text_offset if self.score.logprobs else len(self.text)
        first = self.text[:end] or f"token_id:{self.score.token_ids[0]}"
        return {
            "tokens": [first, *rest["tokens"]],
            "token_logprobs": [None, *rest["token_logprobs"]],
            "top_logprobs": [None, *rest["top_logprobs"]],
            "text_offset": [0, *rest["text_offset"]],
        }


async def echoes(client: AsyncClient, request: CompletionRequest) -> list[Echo]:
    """Return the prompt of each choice; nothing unless the request asks for an echo.

    Special tokens among token ids are written as the vocabulary spells them, since a text prompt
    would have to spell them, too. Raises SpecmeshError.
    """
    if not request.echo:
        return []

    async def text_of(prompt: str | list[int]) -> str:
        if isinstance(prompt, str):
            return prompt
        return await client.detokenize(prompt, keep_special_tokens=True, model=request.model)

    async def echo_of(prompt: str | list[int]) -> Echo:
        if request.logprobs is None:
            return Echo(await text_of(prompt))
        text, score = await asyncio.gather(
            text_of(prompt),
            client.score(
                prompt,
                num_top_logprobs=request.logprobs,
                add_special_tokens=None if isinstance(prompt, list) else request.add_special_tokens,
                cache_salt=request.cache_salt or "",
                model=request.model,
            ),
        )
        return Echo(text, score)

    found = await asyncio.gather(*map(echo_of, request.prompts))
    return [echo for echo in found for _ in range(request.n)]
