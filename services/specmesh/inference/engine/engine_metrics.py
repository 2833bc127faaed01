"""Metrics of forward passes and of the KV cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from opentelemetry.metrics import Observation

from specmesh.inference.engine.kv_counts import KvCounts
from specmesh.serving import conventions as names
from specmesh.serving import metrics
from specmesh.serving.histograms import Series
from specmesh.serving.instruments import CounterMetric, GaugeMetric

if TYPE_CHECKING:
    from specmesh.inference.engine.engine import Engine

_forward = metrics.FORWARD_DURATION.instrument()
_batch = metrics.BATCH_SIZE.instrument().series()
_tokens = metrics.BATCH_TOKENS.instrument().series()


def record_forward(duration_ms: float, kind: str, num_sequences: int, num_tokens: int) -> None:
    """Record a forward pass in the metrics. ``kind`` is what ``kind_of`` returns for its parts."""
    # Rounded up to powers of two, which are few enough for an attribute.
    width = 1 << (num_tokens - 1).bit_length()
    _durations(kind, width).record(duration_ms / 1e3)
    _batch.record(num_sequences)
    _tokens.record(num_tokens)


@lru_cache(maxsize=1024)
def _durations(kind: str, width: int) -> Series:
    return _forward.series({names.FORWARD_KIND: kind, names.FORWARD_WIDTH: width})


def observe(engine: Engine, pool: KvCounts | None) -> None:
    """Report the batch, the queue, and the blocks of ``pool`` if it is given."""
    _report(metrics.JOBS, lambda: engine.num_running)
    _report(metrics.QUEUE_DEPTH, lambda: engine.queue_depth)
    _report(metrics.QUEUE_LIMIT, lambda: engine.max_queue)
    if pool is None:
        return

    def blocks() -> Iterable[Observation]:
        counts = {"used": pool.num_used, "cached": pool.num_cached, "free": pool.num_free}
        return [Observation(n, {names.STATE: state}) for state, n in counts.items()]

    metrics.KV_BLOCKS.observe(blocks)
    _report(metrics.KV_SHARED, lambda: pool.num_shared)
    _report(metrics.KV_EVICTIONS, lambda: pool.num_evicted)
    _report(metrics.KV_LOOKED_UP, lambda: pool.num_looked_up_tokens)
    _report(metrics.KV_HITS, lambda: pool.num_hit_tokens)


def _report(metric: GaugeMetric | CounterMetric, read: Callable[[], int]) -> None:
    metric.observe(lambda: [Observation(read())])
