"""The cost of a call, recorded on its span and in the metrics."""

from __future__ import annotations

import time

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.model import SequenceState
from specmesh.mesh.v1alpha1 import cost_pb2
from specmesh.serving import conventions as names
from specmesh.serving import metrics
from specmesh.serving.telemetry.pipeline import annotate, is_recorded, tracer

_queue_time = metrics.CALL_QUEUE.instrument().series()
_forward_time = metrics.CALL_FORWARD.instrument().series()
_computed = metrics.COMPUTED_TOKENS.tally()
_cached = metrics.CACHED_TOKENS.tally()


def record_cost(cost: cost_pb2.ComputeCost) -> None:
    """Record the cost of a call that is ending. Call it on the event loop and inside the call's
    span."""
    annotate(
        queue_ms=cost.queue_ms,
        forward_ms=cost.forward_ms,
        cached_tokens=cost.num_cached_tokens,
        computed_tokens=cost.num_computed_tokens,
    )
    _count(cost)


def _count(cost: cost_pb2.ComputeCost, num_forwards: int = 1) -> None:
    _queue_time.record(cost.queue_ms / 1e3)
    for _ in range(num_forwards):
        _forward_time.record(cost.forward_ms / 1e3)
    _computed.add(cost.num_computed_tokens)
    _cached.add(cost.num_cached_tokens)


class FurtherTokens:
    """Records the cost of the further tokens of a call, each on a span below the call's own."""

    def __init__(self) -> None:
        self.number = 0
        """Verdicts so far."""
        self._is_recorded = is_recorded()
        self._since_ns = 0

    def begin(self) -> None:
        """Record that the first verdict has come."""
        self.number = 1
        self._since_ns = time.time_ns()

    def record(self, cost: cost_pb2.ComputeCost) -> None:
        """Record the ``cost`` of a verdict that comes now, of as many forwards as tokens."""
        if self._is_recorded:
            now_ns = time.time_ns()
            attributes = {
                names.FURTHER: self.number,
                names.QUEUE_MS: cost.queue_ms,
                names.FORWARD_MS: cost.forward_ms,
            }
            tracer.start_span(
                names.VERDICT_SPAN, attributes=attributes, start_time=self._since_ns
            ).end(now_ns)
            self._since_ns = now_ns
        self.number += 1
        _count(cost, cost.num_computed_tokens)


def round_to_blocks(cost: cost_pb2.ComputeCost, num_prefix_tokens: int) -> None:
    """Round the prefix tokens in ``cost`` to whole blocks, before the caller sees them.

    The cached text may be somebody else's. Exact counts would reveal it token by token, since each
    right guess would raise the count by one.
    """
    before_last = num_prefix_tokens - 1
    held = min(cost.num_cached_tokens, before_last)
    rounded = held // BLOCK_TOKENS * BLOCK_TOKENS
    read = before_last - held
    rounded_read = (before_last - rounded) // BLOCK_TOKENS * BLOCK_TOKENS
    cost.num_cached_tokens = rounded
    cost.num_computed_tokens = max(0, cost.num_computed_tokens - read + rounded_read)


def add_cost(total: cost_pb2.ComputeCost, part: cost_pb2.ComputeCost) -> None:
    """Add one message's cost to the total of its call."""
    total.queue_ms += part.queue_ms
    total.forward_ms += part.forward_ms
    total.num_cached_tokens += part.num_cached_tokens
    total.num_computed_tokens += part.num_computed_tokens


class CostMeter:
    """Measures the cost of a call since the last reading; ``queue_ms`` is part of the first, and
    the cached tokens are part of the first with a forward pass."""

    def __init__(self, sequence: SequenceState, queue_ms: float = 0.0) -> None:
        self._sequence = sequence
        self._queue_ms = queue_ms
        self._since = time.perf_counter()
        self._computed = 0

    def read(self) -> cost_pb2.ComputeCost:
        """Return the cost since the last reading."""
        now, computed = time.perf_counter(), self._sequence.num_computed_tokens
        cost = cost_pb2.ComputeCost(queue_ms=self._queue_ms)
        if computed > self._computed:
            size = self._sequence.latest_forward
            cost.forward_ms = (now - self._since) * 1e3
            cost.num_cached_tokens = 0 if self._computed else self._sequence.num_cached_tokens
            cost.num_computed_tokens = computed - self._computed
            cost.num_batch_calls = size.num_calls
            cost.num_batch_tokens = size.num_rows
        self._queue_ms, self._since, self._computed = 0.0, now, computed
        return cost
