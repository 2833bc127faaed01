"""Metrics of the confidence service."""

from __future__ import annotations

import math

from specmesh.serving import conventions as names
from specmesh.serving import metrics

_tokens = metrics.FILTER_TOKENS.instrument()
_assessed = metrics.FILTER_ASSESSED.instrument()
_threshold = metrics.FILTER_THRESHOLD.instrument()
_batch_size = metrics.FILTER_BATCH_SIZE.instrument()
_waited = metrics.FILTER_WAIT.instrument()


def record_assessment(
    scorer: str, threshold: float, *, num_positions: int, num_kept: int, num_escalated: int
) -> None:
    """Record the assessment of one request."""
    _assessed.add(num_positions)
    _tokens.add(num_kept, {names.FILTER_DECISION: "kept"})
    _tokens.add(num_escalated, {names.FILTER_DECISION: "escalated"})
    if math.isfinite(threshold):
        _threshold.set(threshold, {names.FILTER_SCORER: scorer})


def record_batch(size: int) -> None:
    """Record a batch that this process released."""
    _batch_size.record(size)


def record_wait(waited_ms: float) -> None:
    """Record the wait of a released request."""
    _waited.record(waited_ms / 1e3)
