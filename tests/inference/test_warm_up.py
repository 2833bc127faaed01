"""The forward passes of a model before its first call."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.inference.conftest import KV_BYTES

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.simulated.empty import EmptyModel
from specmesh.inference.service.warm_up import forward_times, warm_up


@pytest.mark.parametrize(
    ("cache_tokens", "sizes"),
    [(1 << 14, [1, 2, 4, 8, 16]), (64, [1, 2, 4, 8]), (48, [1, 2, 4])],
)
def test_forwards_are_timed_as_far_as_context_and_cache_reach(load, cache_tokens, sizes):
    model = load("qwen2", cache_tokens=cache_tokens)
    times = forward_times(model)
    assert [rows for rows, _ in times] == sizes
    assert all(seconds > 0 for _, seconds in times)
    assert model.pool.num_used == 0


def test_a_context_that_is_full_with_the_prefix_leaves_nothing_to_time(load):
    model = load("qwen2")
    model.description = replace(model.description, context_tokens=32)
    assert forward_times(model) == []


def test_a_model_without_parameters_is_not_timed():
    assert forward_times(EmptyModel()) == []


def test_a_cache_without_room_for_the_widest_forward_is_refused_with_the_bytes_it_takes(load):
    least = 3 * BLOCK_TOKENS
    warm_up(load("qwen2", cache_tokens=least))
    needed = least * KV_BYTES["qwen2"]
    with pytest.raises(ModelNotLoadable, match=f"^--cache-bytes: at least {needed} bytes$"):
        load("qwen2", cache_tokens=least - 1)
