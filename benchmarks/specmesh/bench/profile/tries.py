"""Tries ways of decoding over a mesh, as clients see it: how fast, and the same text?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from specmesh.bench.profile.costs import Way
from specmesh.client import AsyncClient

FINALISTS = 4
"""How many of the fastest are tried again, beside the one chosen."""


@dataclass(frozen=True, slots=True)
class Load:
    """Prompts to answer, so many at once; at least as many as that."""

    prompts: Sequence[str]
    streams: int
    temperature: float
    num_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Try:
    """All prompts of a load, answered once."""

    tokens_per_s: float
    """While as many answers ran as there are streams."""
    texts: tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Tried:
    """One way of decoding, tried some times."""

    way: Way
    tries: list[Try] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        """The median."""
        return median(each.tokens_per_s for each in self.tries)


async def try_all(
    client: AsyncClient, load: Load, ways: Sequence[Way], chosen: Way, passes: int
) -> list[Tried]:
    """Try each of ``ways``, then ``passes`` times the fastest so far and ``chosen``; they take
    turns, so that other load on the machine affects all alike. Returns all, the fastest of those
    tried to the end first. Raises SpecmeshError."""
    await attempt(client, load, ways[0])  # so that no try pays for the prompts
    tried = [Tried(way) for way in ways]
    for each in tried:
        each.tries.append(await attempt(client, load, each.way))
    finalists = _finalists(tried, chosen)
    for number in range(passes):
        for each in finalists[:: 1 if number % 2 else -1]:
            each.tries.append(await attempt(client, load, each.way))
    finalists.sort(key=lambda each: each.tokens_per_s, reverse=True)
    return [*finalists, *(each for each in tried if each not in finalists)]


def _finalists(tried: Sequence[Tried], chosen: Way) -> list[Tried]:
    fastest = sorted(tried, key=lambda each: each.tokens_per_s, reverse=True)
    return [each for rank, each in enumerate(fastest) if rank < FINALISTS or each.way == chosen]


def regret(tried: Sequence[Tried], chosen: Way) -> float:
    """By what share ``chosen`` is slower than the fastest of those tried as often."""
    own = next(each for each in tried if each.way == chosen)
    best = max(each.tokens_per_s for each in tried if len(each.tries) == len(own.tries))
    return 1 - own.tokens_per_s / best


async def attempt(client: AsyncClient, load: Load, way: Way) -> Try:
    """Answer the load's prompts, ``streams`` at a time. Raises SpecmeshError."""
    waiting = list(enumerate(load.prompts))[::-1]
    texts: dict[int, tuple[int, ...]] = {}
    arrivals: list[tuple[float, int]] = []
    ends: list[float] = []

    async def stream() -> None:
        while waiting:
            number, prompt = waiting.pop()
            answer = client.generate(
                prompt,
                strategy=way.strategy,
                lookahead=way.lookahead,
                width=way.width,
                temperature=load.temperature,
                seed=load.seed + number,
                acceptance_mode="coupled",
                max_tokens=load.num_tokens,
                ignore_end_of_text=True,
            )
            arrivals.extend([(time.perf_counter(), len(chunk.token_ids)) async for chunk in answer])
            texts[number] = tuple(answer.result.token_ids)
        ends.append(time.perf_counter())

    began = time.perf_counter()
    await asyncio.gather(*(stream() for _ in range(load.streams)))
    until = min(ends)
    tokens = sum(count for at, count in arrivals if at <= until)
    return Try(tokens / (until - began), tuple(texts[number] for number in sorted(texts)))
