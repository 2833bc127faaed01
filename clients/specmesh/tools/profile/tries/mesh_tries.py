"""Tries of ways of decoding over a mesh, as clients see them: their speed and their texts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from specmesh.client import AsyncClient, GenerationStats
from specmesh.tools.profile.measure.stillness import Pace, on_still_cores
from specmesh.tools.profile.measure.watch import CoreWatch
from specmesh.tools.profile.rounds import Drafting, Way
from specmesh.tools.profile.tries.polish import polished

FINALISTS = 5
"""Number of the fastest that are tried again, in addition to the chosen one."""
_SCREENING = -1
"""Number of the pass before the first."""


@dataclass(frozen=True, slots=True)
class Load:
    """Prompts to answer, ``streams`` at a time; there are at least that many."""

    prompts: Sequence[str]
    streams: int
    temperature: float
    num_tokens: int
    seed: int

    def at(self, temperature: float) -> Self:
        """Return a copy at another temperature."""
        return replace(self, temperature=temperature)


@dataclass(frozen=True, slots=True)
class Try:
    """One try: all prompts of a load, answered once."""

    tokens_per_s: float
    """Speed while as many answers ran as there are streams."""
    rounds: int
    """Number of verifications of all answers."""
    texts: tuple[tuple[int, ...], ...]
    core_ms: Mapping[str, float] = field(default_factory=dict)
    """Speed of the cores, as in ``Pace``."""

    @property
    def tokens(self) -> int:
        """Return the tokens of all answers."""
        return sum(map(len, self.texts))

    @property
    def rounds_per_s(self) -> float:
        """Return the rounds per second while as many answers ran as there are streams."""
        return self.tokens_per_s * self.rounds / self.tokens

    @property
    def pace(self) -> Pace:
        """Return the pace of its rounds."""
        return Pace(self.rounds_per_s, self.core_ms)


@dataclass(slots=True)
class Tried:
    """One way of decoding and its tries."""

    way: Way
    screening: Try
    """The first try, which decides whether there are others."""
    finals: list[Try] = field(default_factory=list)
    rounds_per_s: float = 0.0
    """Speed in the tries that count. If there are several, it is that at the machine's usual speed
    on undisturbed cores."""
    counted: Try | None = None
    """A try with many prompts, for any number of streams, because tokens per round don't depend on
    it."""

    @property
    def all_tries(self) -> Sequence[Try]:
        """Return all tries, in the order in which those of other ways of the same rank were
        made."""
        return [self.screening, *self.finals, *([self.counted] if self.counted else [])]

    @property
    def tries(self) -> Sequence[Try]:
        """Return the tries that count: the first one only if there are no others, because a way
        that is fast in its first try is partly lucky."""
        return self.finals or [self.screening]

    @property
    def paces(self) -> dict[int, Pace]:
        """Return the paces of the tries that count, by pass."""
        first = 0 if self.finals else _SCREENING
        return {number: each.pace for number, each in enumerate(self.tries, first)}

    @property
    def tokens_per_round(self) -> float:
        """Return the mean tokens per round, of the counted try if there is one, otherwise of all
        tries together, because it depends on prompts only."""
        tries = [self.counted] if self.counted else self.tries
        return sum(each.tokens for each in tries) / sum(each.rounds for each in tries)

    @property
    def tokens_per_s(self) -> float:
        """Return the product of both."""
        return self.rounds_per_s * self.tokens_per_round


async def try_all(
    client: AsyncClient, cores: CoreWatch, loads: Sequence[Load], ways: Sequence[Way], chosen: Way
) -> list[Tried]:
    """Try each of ``ways`` with the first load, then the fastest and ``chosen`` with each of the
    others. They take turns, so that other load on the machine affects all equally. Returns all,
    with those tried on every load first, the fastest first. Raises SpecmeshError."""
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
    """Also answer ``load`` with those of ``tried`` that were tried on every load, unless the result
    is ``known``. They are then sorted again, the fastest first. Raises SpecmeshError."""
    finalists = [each for each in tried if each.finals]
    for each in finalists:
        if each.way not in known:
            known[each.way] = await attempt(client, cores, load, each.way)
        each.counted = known[each.way]
    finalists.sort(key=lambda each: each.tokens_per_s, reverse=True)
    tried[: len(finalists)] = finalists


async def warm_up(client: AsyncClient, cores: CoreWatch, load: Load, ways: Sequence[Way]) -> None:
    """Have every replica read the prompts, so that no try includes the prefill."""
    for way in {each.strategy: each for each in ways}.values():
        await attempt(client, cores, replace(load, num_tokens=2), way)


def _finalists(tried: Sequence[Tried], chosen: Way) -> list[Tried]:
    fastest = sorted(tried, key=lambda each: each.tokens_per_s, reverse=True)
    return [each for rank, each in enumerate(fastest) if rank < FINALISTS or each.way == chosen]


def steady(tried: Sequence[Tried]) -> None:
    """Set the speeds of all ways, corrected for other load on the machine."""
    speeds = polished(on_still_cores({each.way: each.paces for each in tried}))
    for each in tried:
        each.rounds_per_s = speeds[each.way]


def regret(tried: Sequence[Tried], chosen: Way) -> float:
    """Return the share by which ``chosen`` is slower than the fastest of those with as many
    tries."""
    own = next(each for each in tried if each.way == chosen)
    best = max(each.tokens_per_s for each in tried if len(each.finals) == len(own.finals))
    return 1 - own.tokens_per_s / best


def num_answers(streams: int) -> int:
    """Return the number of answers in a try: at least two per stream, because fewer streams run
    while the last answers end."""
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
