"""The forward passes of a model before its first call."""

from __future__ import annotations

import pytest

from specmesh.inference.models.simulated.empty import EmptyModel
from specmesh.inference.service.warm_up import forward_times


@pytest.mark.parametrize(
    ("cache_tokens", "sizes"),
    [(1 << 14, [1, 2, 4, 8, 16]), (64, [1, 2, 4, 8]), (32, [])],
)
def test_forwards_are_timed_as_far_as_context_and_cache_reach(load, cache_tokens, sizes):
    model = load("qwen2", cache_tokens=cache_tokens)
    times = forward_times(model)
    assert [rows for rows, _ in times] == sizes
    assert all(seconds > 0 for _, seconds in times)
    assert model.pool.num_used == 0


def test_a_model_without_parameters_is_not_timed():
    assert forward_times(EmptyModel()) == []
