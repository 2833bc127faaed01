"""The parsing of what calls took at their replicas."""

from __future__ import annotations

from math import inf

from specmesh.decoding.errors import InvalidField
from specmesh.mesh.v1alpha1 import cost_pb2
from specmesh.orchestrator.replicas.latencies.observations import ReplicaCost

_TIMES = ("queue_ms", "forward_ms", "grammar_ms", "computed_at_s")


def read_cost(message: cost_pb2.ComputeCost, max_tokens: int | None = None) -> ReplicaCost:
    """Return the cost in ``message``; a call that has ``max_tokens`` cannot have computed more.

    Raises ``InvalidField`` for a time that is negative or not finite: all answers learn from it.
    """
    for name in _TIMES:
        if not 0 <= getattr(message, name) < inf:
            raise InvalidField(f"cost.{name}", "must be finite and at least 0")
    num_computed = message.num_computed_tokens
    return ReplicaCost(
        queue_s=message.queue_ms / 1e3,
        forward_s=message.forward_ms / 1e3,
        num_computed_tokens=num_computed if max_tokens is None else min(num_computed, max_tokens),
        num_batch_calls=message.num_batch_calls,
        num_batch_tokens=message.num_batch_tokens,
        num_worthwhile_calls=message.num_worthwhile_calls,
        grammar_s=message.grammar_ms / 1e3,
        computed_at_s=message.computed_at_s,
    )
