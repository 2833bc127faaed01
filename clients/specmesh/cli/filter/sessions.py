"""Many sessions at once, with the filter and with the target alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from specmesh.cli.filter.sweep import Setting, ask
from specmesh.client import Client, GenerationResult
from specmesh.traces.spans import Span, SpanKind

_BATCH_SIZE = "specmesh.filter.batch_size"


@dataclass(frozen=True, slots=True)
class Round:
    """All sessions together."""

    tokens_per_s: float
    results: Sequence[GenerationResult]


@dataclass(frozen=True, slots=True)
class Crowd:
    """``count`` sessions at once, each with a prompt; there may be fewer prompts."""

    prompts: Sequence[str]
    count: int
    num_tokens: int
    setting: Setting
    num_rounds: int

    async def run(self, client: Client, setting: Setting | None) -> Round:
        """Every session answers once; the time is that until the last of them is done."""
        streams = [
            ask(client, self.prompts[n % len(self.prompts)], setting, self.num_tokens)
            for n in range(self.count)
        ]
        began = time.perf_counter()
        await asyncio.gather(*(stream.text() for stream in streams))
        seconds = time.perf_counter() - began
        results = [stream.result for stream in streams]
        return Round(sum(len(result.token_ids) for result in results) / seconds, results)

    async def measure(self, client: Client) -> tuple[list[Round], list[Round]]:
        """Rounds with the filter, and with the target alone, in turns after one of each."""
        for setting in (self.setting, None):
            await self.run(client, setting)
        filtered, plain = [], []
        for _ in range(self.num_rounds):
            filtered.append(await self.run(client, self.setting))
            plain.append(await self.run(client, None))
        return filtered, plain


@dataclass(frozen=True, slots=True)
class SessionFigures:
    """Output tokens per second of all ``count`` sessions together: medians over the rounds."""

    count: int
    scorer: str
    threshold: float
    throughput_filter: float
    throughput_target: float
    factor: float
    """Median over the rounds of the one over the other."""
    kept_share: float
    mean_batch_size: float
    """Requests that the request cache released together, over its batches."""
    mean_batch_size_of_request: float
    """The same over requests: how much company one had."""


def sum_up(
    crowd: Crowd, filtered: Sequence[Round], plain: Sequence[Round], spans: Iterable[Span]
) -> SessionFigures:
    """``spans`` are those of a round with the filter."""
    sizes = batch_sizes(spans)
    results = [result for each in filtered for result in each.results]
    return SessionFigures(
        count=crowd.count,
        scorer=crowd.setting.scorer,
        threshold=crowd.setting.threshold,
        throughput_filter=median(each.tokens_per_s for each in filtered),
        throughput_target=median(each.tokens_per_s for each in plain),
        factor=median(
            one.tokens_per_s / other.tokens_per_s
            for one, other in zip(filtered, plain, strict=True)
        ),
        kept_share=sum(len(result.unchecked) for result in results)
        / sum(len(result.token_ids) for result in results),
        mean_batch_size=mean_batch_size(sizes),
        mean_batch_size_of_request=fmean(sizes) if sizes else 0.0,
    )


def batch_sizes(spans: Iterable[Span]) -> list[float]:
    """For each request that was released, how many were with it, itself included."""
    return [
        span.number(_BATCH_SIZE)
        for span in spans
        if span.kind is SpanKind.CLIENT and _BATCH_SIZE in span.attributes
    ]


def mean_batch_size(sizes: Sequence[float]) -> float:
    """Over the batches, from the size of the batch that each request was in; 0 for none."""
    return len(sizes) / sum(1 / size for size in sizes) if sizes else 0.0
