"""The measurements of the engine: concurrent streams, forwards by width, prompts with a common
prefix."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from specmesh.bench.engine.asking import forward_ms, next_token, serving
from specmesh.bench.engine.figures import TimedAnswer, Turn
from specmesh.bench.engine.plan import (
    COMMON_TOKENS,
    SESSIONS,
    WIDTH_PREFIX_TOKENS,
    WIDTHS,
    EnginePlan,
)
from specmesh.bench.engine.prompts import Prompts
from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.engine.engine import Engine

_WARM_UP_TOKENS = 2
_WIDTH_ROUNDS = 15


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Consecutive sessions with one system prompt of ``common_tokens``.

    ``hit_rate`` is the share of it that sessions after the first found cached.
    """

    sessions: int
    common_tokens: int
    hit_rate: float
    first_ttft_ms: float
    others_ttft_p50_ms: float


def answer_streams(plan: EnginePlan, num_streams: int) -> Iterator[Turn]:
    """Yield greedy answers to the prompts, in order, by that many concurrent clients."""
    prompts = Prompts(plan.model, plan.seed)
    with serving(plan) as engine:
        warm_up = prompts.warm_up(num_streams)
        asyncio.run(answer_all(engine, warm_up, _WARM_UP_TOKENS, num_streams))
        timed = prompts.mixed(plan.num_answers(num_streams))
        for turn in plan.turns(num_streams):
            yield asyncio.run(answer_all(engine, timed[turn], plan.num_tokens, num_streams))


async def answer_all(
    engine: Engine, prompts: Sequence[list[int]], num_tokens: int, num_streams: int
) -> Turn:
    """Return greedy answers of ``num_tokens`` to ``prompts`` by that many concurrent clients."""
    answers: dict[int, TimedAnswer] = {}
    waiting = iter(enumerate(prompts))
    await engine.ready()  # Inside the task group its error would be wrapped.
    async with asyncio.TaskGroup() as clients:
        for _ in range(num_streams):
            clients.create_task(_client(engine, waiting, num_tokens, answers))
    return [answers[number] for number in range(len(answers))]


async def _client(
    engine: Engine,
    prompts: Iterator[tuple[int, list[int]]],
    num_tokens: int,
    answers: dict[int, TimedAnswer],
) -> None:
    """Run one stream, which begins its next answer as soon as one has ended."""
    for number, prompt in prompts:
        answers[number] = await _answer(engine, prompt, num_tokens)


async def _answer(engine: Engine, prompt: Sequence[int], num_tokens: int) -> TimedAnswer:
    model = await engine.ready()
    token_s = []
    asked_s = time.perf_counter()
    prefix = PrefixChain(prompt)
    for _ in range(num_tokens):
        prefix.append([(await next_token(engine, model, prefix)).token_id])
        token_s.append(time.perf_counter())
    return TimedAnswer(tuple(prefix[len(prompt) :]), asked_s, tuple(token_s))


def width_ms(plan: EnginePlan) -> dict[int, float]:
    """Return the median milliseconds of a forward by width after the same prefix; the widths take
    turns."""
    return asyncio.run(_width_ms(plan))


async def _width_ms(plan: EnginePlan) -> dict[int, float]:
    text = Prompts(plan.model, plan.seed).of_length(WIDTH_PREFIX_TOKENS + WIDTHS[-1])
    prefix, drafts = text[:WIDTH_PREFIX_TOKENS], text[WIDTH_PREFIX_TOKENS:]
    times: dict[int, list[float]] = {width: [] for width in WIDTHS}
    with serving(plan) as engine:
        model = await engine.ready()
        for number in range(_WIDTH_ROUNDS + 1):
            for width, found in times.items():
                tree = TokenTree.chain(drafts[: width - 1])
                taken_ms = await forward_ms(engine, model, prefix, tree)
                if number:  # The first round fills the cache and warms up.
                    found.append(taken_ms)
    return {width: float(np.median(found)) for width, found in times.items()}


def shared_prefix(plan: EnginePlan) -> SharedPrefix:
    """Measure what sessions gain when an earlier one had the same system prompt."""
    return asyncio.run(_shared_prefix(plan))


async def _shared_prefix(plan: EnginePlan) -> SharedPrefix:
    prompts = Prompts(plan.model, plan.seed)
    ttft_ms, cached = [], []
    with serving(plan) as engine:
        model = await engine.ready()
        await _answer(engine, prompts.warm_up(1)[0], _WARM_UP_TOKENS)
        for prompt in prompts.with_common_beginning(SESSIONS):
            began = time.perf_counter()
            token = await next_token(engine, model, prompt)
            ttft_ms.append((time.perf_counter() - began) * 1e3)
            cached.append(min(token.num_cached_tokens, COMMON_TOKENS))
    return SharedPrefix(
        sessions=SESSIONS,
        common_tokens=COMMON_TOKENS,
        hit_rate=float(np.mean(cached[1:])) / COMMON_TOKENS,
        first_ttft_ms=ttft_ms[0],
        others_ttft_p50_ms=float(np.median(ttft_ms[1:])),
    )
