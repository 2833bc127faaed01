"""What forwards and calls take falls into buckets that tell slow from fast."""

from __future__ import annotations

import pytest
from tests.metrics import recorded

from specmesh.inference.engine.engine_metrics import record_forward
from specmesh.inference.service.accounts import record_cost
from specmesh.mesh.v1alpha1 import cost_pb2

__all__ = ["recorded"]


def filled(recorded, name: str) -> int:
    """In how many buckets something is."""
    metric = recorded.metric(name)
    assert metric.description
    points = metric.data.data_points
    return sum(
        any(bucket) for bucket in zip(*(point.bucket_counts for point in points), strict=True)
    )


@pytest.mark.parametrize("name", ["specmesh.queue.duration", "specmesh.forward.duration"])
def test_what_a_call_takes_is_told_apart_from_tenths_of_ms_to_seconds(recorded, name):
    values = (0.05, 0.3, 0.7, 3.0, 7.0, 30.0, 70.0, 300.0, 700.0, 3_000.0, 7_000.0, 30_000.0)
    for value in values:
        record_cost(cost_pb2.ComputeCost(queue_ms=value, forward_ms=value))
    assert filled(recorded, name) == len(values)
    assert recorded.metric(name).unit == "s"


def test_forwards_are_told_apart_by_time_and_by_what_shares_them(recorded):
    sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    for size in sizes:
        record_forward(0.2 * size, "decode", num_sequences=size, num_tokens=4 * size)
    assert filled(recorded, "specmesh.engine.batch.size") == len(sizes)
    assert filled(recorded, "specmesh.engine.batch.tokens") == len(sizes)
    assert filled(recorded, "specmesh.engine.forward.duration") == len(sizes)
