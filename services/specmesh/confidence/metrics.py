"""What the service did, as metrics."""

from __future__ import annotations

import math

from opentelemetry import metrics

_meter = metrics.get_meter("specmesh.confidence")
_tokens = _meter.create_counter(
    "specmesh.filter.tokens",
    unit="{token}",
    description="draft tokens decided on, by specmesh.filter.decision: kept or escalated",
)
_assessed = _meter.create_counter(
    "specmesh.filter.assessed", unit="{token}", description="draft tokens that were scored"
)
_threshold = _meter.create_gauge(
    "specmesh.filter.threshold",
    description="what scores were compared with last, by specmesh.filter.scorer; finite ones",
)
_batch_size = _meter.create_histogram(
    "specmesh.filter.batch.size",
    unit="{request}",
    description="requests released together, counted by the replica that released them",
    explicit_bucket_boundaries_advisory=(1, 2, 4, 8, 16, 32, 64, 128, 256),
)
_waited = _meter.create_histogram(
    "specmesh.filter.wait.duration",
    unit="ms",
    description="time of a request in the request cache",
    explicit_bucket_boundaries_advisory=(0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100),
)


def record_assessment(
    scorer: str, threshold: float, *, num_positions: int, num_kept: int, num_escalated: int
) -> None:
    """Account for one request."""
    _assessed.add(num_positions)
    _tokens.add(num_kept, {"specmesh.filter.decision": "kept"})
    _tokens.add(num_escalated, {"specmesh.filter.decision": "escalated"})
    if math.isfinite(threshold):
        _threshold.set(threshold, {"specmesh.filter.scorer": scorer})


def record_batch(size: int) -> None:
    """Account for a batch that this process released."""
    _batch_size.record(size)


def record_wait(waited_ms: float) -> None:
    """Account for a request that was released."""
    _waited.record(waited_ms)
