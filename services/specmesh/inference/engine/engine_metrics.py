"""What forward passes cost and what the KV cache holds, as metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from specmesh.inference.engine.blocks import BlockPool
from specmesh.serving.telemetry import MILLISECONDS

if TYPE_CHECKING:
    from specmesh.inference.engine.engine import Engine

_meter = metrics.get_meter("specmesh.inference")
_forward = _meter.create_histogram(
    "specmesh.engine.forward.duration",
    unit="ms",
    description="one forward, whoever shares it",
    explicit_bucket_boundaries_advisory=MILLISECONDS,
)
_batch = _meter.create_histogram(
    "specmesh.engine.batch.size",
    unit="{sequence}",
    description="sequences that share a forward",
    explicit_bucket_boundaries_advisory=[1 << n for n in range(9)],
)
_tokens = _meter.create_histogram(
    "specmesh.engine.batch.tokens",
    unit="{token}",
    description="tokens of a forward, all together",
    explicit_bucket_boundaries_advisory=[1 << n for n in range(12)],
)


def record_forward(duration_ms: float, kind: str, num_sequences: int, num_tokens: int) -> None:
    """Account for a forward pass. ``kind`` is what ``kind_of`` says of its parts."""
    # Widths by power of two: few enough to be an attribute.
    width = 1 << (num_tokens - 1).bit_length()
    attributes: dict[str, str | int] = {
        "specmesh.forward.kind": kind,
        "specmesh.forward.width": width,
    }
    _forward.record(duration_ms, attributes)
    _batch.record(num_sequences)
    _tokens.record(num_tokens)


def observe(engine: Engine, pool: BlockPool | None) -> None:
    """Report the queue, and the blocks of ``pool`` if there is one, with each export of metrics."""
    _gauge("specmesh.engine.queue.depth", "{call}", lambda: engine.queue_depth)
    if pool is None:
        return

    def blocks(_: CallbackOptions) -> Iterable[Observation]:
        counts = {
            "used": pool.num_used,
            "shared": pool.num_shared,
            "cached": pool.num_cached,
            "free": pool.num_free,
        }
        return [Observation(n, {"specmesh.kv.state": state}) for state, n in counts.items()]

    _meter.create_observable_gauge(
        "specmesh.kv.blocks", [blocks], "{block}", "shared ones are among the used"
    )
    _counter("specmesh.kv.evictions", "{block}", lambda: pool.num_evicted)
    _counter("specmesh.kv.prefix.tokens", "{token}", lambda: pool.num_looked_up_tokens)
    _counter("specmesh.kv.prefix.hits", "{token}", lambda: pool.num_hit_tokens)


def _gauge(name: str, unit: str, read: Callable[[], int]) -> None:
    _meter.create_observable_gauge(name, [lambda _: [Observation(read())]], unit)


def _counter(name: str, unit: str, read: Callable[[], int]) -> None:
    _meter.create_observable_counter(name, [lambda _: [Observation(read())]], unit)
