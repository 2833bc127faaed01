"""The log-probabilities of prompts in vLLM's format, ``prompt_logprobs``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from specmesh.client import AsyncClient, TextScore, TokenLogprobs
from specmesh.gateway.requests.chats import ChatRequest
from specmesh.gateway.requests.completions import CompletionRequest
from specmesh.gateway.responses.echo import LOGPROB_BYTES, together
from specmesh.gateway.responses.envelope import Json
from specmesh.gateway.responses.logprobs import LEAST, token_text

PromptLogprobs = list[Json | None]
"""An entry for each token: the token itself and the likeliest, by id; null for the first, which
follows nothing."""


async def prompt_logprobs(
    client: AsyncClient,
    request: CompletionRequest | ChatRequest,
    hold: Callable[[int], None],
    timeout_s: float,
) -> list[PromptLogprobs]:
    """Return the log-probabilities of the prompt of each choice of a completion, or of a chat's one
    prompt; nothing unless the request asks for them. ``hold`` is called with the bytes that they
    take in all choices of a prompt.

    Raises SpecmeshError, and what ``hold`` raises.
    """
    num_top = request.prompt_logprobs
    if num_top is None:
        return []

    async def of(prompt: str | list[int], num_times: int) -> PromptLogprobs:
        score = await client.score(
            prompt,
            num_top_logprobs=num_top,
            add_special_tokens=None if isinstance(prompt, list) else add_special_tokens,
            cache_salt=request.cache_salt or "",
            model=request.model,
            timeout_s=timeout_s,
        )
        hold(LOGPROB_BYTES * len(score.token_ids) * (num_top + 1) * num_times)
        # In a thread, since it takes microseconds for each of many log-probabilities.
        return await asyncio.to_thread(_described, score)

    if isinstance(request, ChatRequest):
        add_special_tokens = None
        messages = [message.spoken for message in request.messages]
        keywords = request.chat_keywords
        prompt = await client.apply_chat_template(messages, model=request.model, **keywords)
        return [await of(list(prompt.token_ids), 1)]
    add_special_tokens = request.add_special_tokens
    found = await together(of(prompt, request.n) for prompt in request.prompts)
    return [scored for scored in found for _ in range(request.n)]


def _described(score: TextScore) -> PromptLogprobs:
    return [None, *map(_position, score.logprobs)]


def _position(at: TokenLogprobs) -> Json:
    """Return the entry for one token, whose rank is known among the likeliest alone."""
    ranks = {each.token_id: rank for rank, each in enumerate(at.top, 1)}
    return {
        str(each.token_id): {
            "logprob": max(each.logprob, LEAST),
            "rank": ranks.get(each.token_id),
            "decoded_token": token_text(each),
        }
        for each in (at.chosen, *at.top)
    }
