"""Tries ways of decoding over a mesh, as clients see it: how fast, and the same text?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from specmesh.client import AsyncClient, GenerationStats
from specmesh.tools.profile.costs import Drafting, Way
from specmesh.tools.profile.measure.stillness import Pace, on_still_cores
from specmesh.tools.profile.measure.watch import CoreWatch
from specmesh.tools.profile.tries.polish import polished

FINALISTS = 5
"""How many of the fastest are tried again, beside the one chosen."""
_SCREENING = -1
"""The pass before the first."""


@dataclass(frozen=True, slots=True)
class Load:
    """Prompts to answer, so many at once; at least as many as that."""

    prompts: Sequence[str]
    streams: int
    temperature: float
    num_tokens: int
    seed: int

    def at(self, temperature: float) -> Self:
        """The same at another temperature."""
        return replace(self, temperature=temperature)


@dataclass(frozen=True, slots=True)
class Try:
    """All prompts of a load, answered once."""

    tokens_per_s: float
    """While as many answers ran as there are streams."""
    rounds: int
    """Verifications of all answers."""
    texts: tuple[tuple[int, ...], ...]
    core_ms: Mapping[str, float] = field(default_factory=dict)
    """As ``Pace`` has it."""

    @property
    def tokens(self) -> int:
        """Of all answers."""
        return sum(map(len, self.texts))

    @property
    def rounds_per_s(self) -> float:
        """While as many answers ran as there are streams."""
        return self.tokens_per_s * self.rounds / self.tokens

    @property
    def pace(self) -> Pace:
        """Of its rounds."""
        return Pace(self.rounds_per_s, self.core_ms)


@dataclass(slots=True)
class Tried:
    """One way of decoding, tried some times."""

    way: Way
    screening: Try
    """That decided whether there are others."""
    finals: list[Try] = field(default_factory=list)
    rounds_per_s: float = 0.0
    """Of the tries that count. Where there are several, at the machine's usual speed on still
    cores."""
    counted: Try | None = None
    """With many prompts, whatever the number of streams: tokens a round don't depend on it."""

    @property
    def all_tries(self) -> Sequence[Try]:
        """In the order in which others of the same rank were made."""
        return [self.screening, *self.finals, *([self.counted] if self.counted else [])]

    @property
    def tries(self) -> Sequence[Try]:
        """Those that count: a way that is fast in its first try is so by luck as well, so that one
        counts only if there are no others."""
        return self.finals or [self.screening]

    @property
    def paces(self) -> dict[int, Pace]:
        """Of the tries that count, by pass."""
        first = 0 if self.finals else _SCREENING
        return {number: each.pace for number, each in enumerate(self.tries, first)}

    @property
    def tokens_per_round(self) -> float:
        """Of all tries together, for it depends on prompts alone; if many were counted, of
        these."""
        tries = [self.counted] if self.counted else self.tries
        return sum(each.tokens for each in tries) / sum(each.rounds for each in tries)

    @property
    def tokens_per_s(self) -> float:
        """What follows from both."""
        return self.rounds_per_s * self.tokens_per_round


async def try_all(
    client: AsyncClient, cores: CoreWatch, loads: Sequence[Load], ways: Sequence[Way], chosen: Way
) -> list[Tried]:
    """Try each of ``ways`` with the first load, then the fastest and ``chosen`` with each of the
    others; they take turns, so that other load on the machine affects all alike. Returns all, the
    fastest of those tried to the end first. Raises SpecmeshError."""
    await warm_up(client, cores, loads[0], ways)
    tried = [Tried(way, await attempt(client, cores, loads[0], way)) for way in ways]
    steady(tried)
    finalists = _finalists(tried, chosen)
    for number, load in enumerate(loads[1:]):
        await warm_up(client, cores, load, [each.way for each in finalists])
        for each in finalists[:: 1 if number % 2 else -1]:
            each.finals.append(await attempt(client, cores, load, each.way))
    steady(tried)
    finalists.sort(key=lambda each: each.tokens_per_s, reverse=True)
    return [*finalists, *(each for each in tried if each not in finalists)]


async def count_all(
    client: AsyncClient, cores: CoreWatch, load: Load, tried: list[Tried], known: dict[Way, Try]
) -> None:
    """Have those of ``tried`` that were tried to the end answer ``load`` as well, unless it is
    ``known`` what comes of it, and sort them anew, the fastest first. Raises SpecmeshError."""
    finalists = [each for each in tried if each.finals]
    for each in finalists:
        if each.way not in known:
            known[each.way] = await attempt(client, cores, load, each.way)
        each.counted = known[each.way]
    finalists.sort(key=lambda each: each.tokens_per_s, reverse=True)
    tried[: len(finalists)] = finalists


async def warm_up(client: AsyncClient, cores: CoreWatch, load: Load, ways: Sequence[Way]) -> None:
    """Have every replica read the prompts, so that no try pays for that."""
    for way in {each.strategy: each for each in ways}.values():
        await attempt(client, cores, replace(load, num_tokens=2), way)


def _finalists(tried: Sequence[Tried], chosen: Way) -> list[Tried]:
    fastest = sorted(tried, key=lambda each: each.tokens_per_s, reverse=True)
    return [each for rank, each in enumerate(fastest) if rank < FINALISTS or each.way == chosen]


def steady(tried: Sequence[Tried]) -> None:
    """Say of all how fast their tries were, for the machine may have been busy meanwhile."""
    speeds = polished(on_still_cores({each.way: each.paces for each in tried}))
    for each in tried:
        each.rounds_per_s = speeds[each.way]


def regret(tried: Sequence[Tried], chosen: Way) -> float:
    """By what share ``chosen`` is slower than the fastest of those tried as often."""
    own = next(each for each in tried if each.way == chosen)
    best = max(each.tokens_per_s for each in tried if len(each.finals) == len(own.finals))
    return 1 - own.tokens_per_s / best


def num_answers(streams: int) -> int:
    """In one try of a pass: two of each stream at least, for while the last ones end, fewer run."""
    return max(4, 2 * streams)


async def attempt(client: AsyncClient, cores: CoreWatch, load: Load, way: Way) -> Try:
    """Answer the load's prompts, ``streams`` at a time. Raises SpecmeshError."""
    waiting = list(enumerate(load.prompts))[::-1]
    texts: dict[int, tuple[int, ...]] = {}
    stats: list[GenerationStats] = []
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
            arrivals.extend([(time.monotonic(), len(chunk.token_ids)) async for chunk in answer])
            texts[number] = tuple(answer.result.token_ids)
            stats.append(answer.result.stats)
        ends.append(time.monotonic())

    began = time.monotonic()
    await asyncio.gather(*(stream() for _ in range(load.streams)))
    until = min(ends)
    return Try(
        tokens_per_s=sum(count for at, count in arrivals if at <= until) / (until - began),
        rounds=sum(each.num_verify_calls for each in stats),
        texts=tuple(texts[number] for number in sorted(texts)),
        core_ms=_of_those_who_work(way, cores.core_ms(began, until)),
    )


def _of_those_who_work(way: Way, core_ms: Mapping[str, float]) -> dict[str, float]:
    drafts = way.drafting is Drafting.DRAFTER
    return {role: ms for role, ms in core_ms.items() if drafts or role != Drafting.DRAFTER}
