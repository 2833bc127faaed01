"""Chats of several turns, each of which goes to any of the orchestrators."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from specmesh.client import AsyncClient


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatLoad:
    """The load. Lengths are in tokens; every turn includes all previous ones."""

    users: int
    """Number of concurrent chats."""
    turns: int
    first_tokens: int
    """Length of the first message, as of one with a document."""
    message_tokens: int
    """Length of each later message."""
    answer_tokens: int
    think_s: float
    """Mean pause before the next message, exponential."""
    strategy: str
    vocab_size: int
    """Size of the vocabulary, from which messages are drawn at random."""
    seed: int


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """An answer. ``number`` is 0 for the first of its chat."""

    number: int
    ttft_s: float
    prompt_tokens: int
    cached_tokens: int
    """Number of prompt tokens that the replica of the first forward had cached."""


async def chat(clients: Sequence[AsyncClient], load: ChatLoad, number: int) -> list[ChatTurn]:
    """Hold a chat, which depends on ``number`` alone, except for the orchestrators it goes to.
    Raises SpecmeshError."""
    rng = Random(f"chat {load.seed} {number}")  # noqa: S311 - no secret
    said: list[int] = []
    turns: list[ChatTurn] = []
    for turn in range(load.turns):
        if turn:
            await asyncio.sleep(rng.expovariate(1 / load.think_s))
        length = load.message_tokens if turn else load.first_tokens
        said += (rng.randrange(1, load.vocab_size) for _ in range(length))
        stream = rng.choice(clients).generate(
            said,
            strategy=load.strategy,
            temperature=0,
            max_tokens=load.answer_tokens,
            ignore_end_of_text=True,
        )
        began, ttft_s = time.perf_counter(), 0.0
        async for _ in stream:
            ttft_s = ttft_s or time.perf_counter() - began
        stats = stream.result.stats
        turns.append(ChatTurn(turn, ttft_s, stats.num_prompt_tokens, stats.num_cached_tokens))
        said += stream.result.token_ids
    return turns


async def chats(
    clients: Sequence[AsyncClient], load: ChatLoad, numbers: Sequence[int]
) -> list[ChatTurn]:
    """Hold the chats of ``numbers``, as many concurrently as there are users."""
    left = iter(numbers)

    async def user() -> list[ChatTurn]:
        return [turn for number in left for turn in await chat(clients, load, number)]

    async with asyncio.TaskGroup() as group:
        users = [group.create_task(user()) for _ in range(load.users)]
    return [turn for each in users for turn in each.result()]
