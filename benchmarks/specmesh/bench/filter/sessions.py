"""Many concurrent sessions, with the filter and with the target alone."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import psutil

from specmesh.bench.filter.sweep import FilterSetting, speculation
from specmesh.client import AsyncClient, GenerationResult
from specmesh.tools.kit.experiment import Experiment
from specmesh.traces.spans import Span, SpanKind

_BATCH_SIZE = "specmesh.filter.batch_size"


@dataclass(frozen=True, slots=True)
class Round:
    """All sessions together, with a ``setting`` or by the target alone.

    ``cpu_ms`` has milliseconds of a core per output token, by process.
    """

    setting: FilterSetting | None
    tokens_per_s: float
    kept_share: float
    cpu_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Crowd:
    """A crowd of ``count`` concurrent sessions; they reuse the prompts of ``experiment`` if these
    are fewer."""

    experiment: Experiment
    count: int
    settings: Sequence[FilterSetting]
    num_rounds: int

    async def answers(
        self, client: AsyncClient, setting: FilterSetting | None
    ) -> list[GenerationResult]:
        """Return the results of all sessions, once the last of them is done."""
        prompts, chosen = self.experiment.prompts, speculation(setting)
        streams = [
            self.experiment.ask(client, prompts[n % len(prompts)], chosen)
            for n in range(self.count)
        ]
        await asyncio.gather(*streams)
        return [stream.result for stream in streams]

    async def measure(self, client: AsyncClient, pids: Mapping[str, int]) -> AsyncIterator[Round]:
        """Time rounds with the target alone and with each setting in turns, after an untimed one of
        each. ``pids`` are those of the mesh's processes."""
        turns = (None, *self.settings)
        for setting in turns:
            await self.answers(client, setting)
        for _ in range(self.num_rounds):
            for setting in turns:
                yield await self._time(client, setting, {**pids, "client": os.getpid()})

    async def _time(
        self, client: AsyncClient, setting: FilterSetting | None, pids: Mapping[str, int]
    ) -> Round:
        before = _cpu_s(pids)
        began = time.perf_counter()
        results = await self.answers(client, setting)
        seconds = time.perf_counter() - began
        num_tokens = sum(len(result.token_ids) for result in results)
        return Round(
            setting,
            tokens_per_s=num_tokens / seconds,
            kept_share=sum(len(result.unchecked) for result in results) / num_tokens,
            cpu_ms={
                name: (after - before[name]) * 1e3 / num_tokens
                for name, after in _cpu_s(pids).items()
            },
        )


@dataclass(frozen=True, slots=True)
class CrowdPoint:
    """One setting, all sessions together: medians over the rounds."""

    scorer: str
    threshold: float
    kept_share: float
    tokens_per_s: float
    factor: float
    """Throughput relative to the target alone in the same round."""
    mean_batch_size: float
    """Mean number of requests that the request cache released together, over its batches."""
    mean_batch_size_of_request: float
    """The same, as the mean over requests."""
    cpu_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SessionFigures:
    """The figures of all settings. ``cpu_ms``, here and in the points, has milliseconds of a core
    per output token, by process."""

    count: int
    target_tokens_per_s: float
    target_cpu_ms: Mapping[str, float]
    points: Sequence[CrowdPoint]


def sum_up(
    crowd: Crowd, rounds: Sequence[Round], traces: Sequence[Sequence[Span]]
) -> SessionFigures:
    """Summarise the rounds; ``traces`` are of one more round with each setting, in order."""
    plain = [each for each in rounds if each.setting is None]
    points = []
    for number, setting in enumerate(crowd.settings):
        own = [each for each in rounds if each.setting == setting]
        traced = traces[number * crowd.count : (number + 1) * crowd.count]
        sizes = batch_sizes(span for spans in traced for span in spans)
        points.append(
            CrowdPoint(
                scorer=setting.scorer,
                threshold=setting.threshold,
                kept_share=median(each.kept_share for each in own),
                tokens_per_s=median(each.tokens_per_s for each in own),
                factor=median(
                    one.tokens_per_s / other.tokens_per_s
                    for one, other in zip(own, plain, strict=True)
                ),
                mean_batch_size=mean_batch_size(sizes),
                mean_batch_size_of_request=fmean(sizes) if sizes else 0.0,
                cpu_ms=_median_cpu_ms(own),
            )
        )
    return SessionFigures(
        count=crowd.count,
        target_tokens_per_s=median(each.tokens_per_s for each in plain),
        target_cpu_ms=_median_cpu_ms(plain),
        points=points,
    )


def batch_sizes(spans: Iterable[Span]) -> list[float]:
    """Return the size of each released request's batch."""
    return [
        span.number(_BATCH_SIZE)
        for span in spans
        if span.kind is SpanKind.CLIENT and _BATCH_SIZE in span.attributes
    ]


def mean_batch_size(sizes: Sequence[float]) -> float:
    """Return the mean over batches, from the size of each request's batch; 0 if there are none."""
    return len(sizes) / sum(1 / size for size in sizes) if sizes else 0.0


def _cpu_s(pids: Mapping[str, int]) -> dict[str, float]:
    times = {name: psutil.Process(pid).cpu_times() for name, pid in pids.items()}
    return {name: each.user + each.system for name, each in times.items()}


def _median_cpu_ms(rounds: Sequence[Round]) -> dict[str, float]:
    return {name: median(each.cpu_ms[name] for each in rounds) for name in rounds[0].cpu_ms}
