"""The memory of a GPU: what KV takes of it by default, and what follows when it runs out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain

import numpy as np
import pytest
import torch
from tests.devices import device
from tests.gpu.shipped import load, prompts

from specmesh import models
from specmesh.bench.engine.asking import next_token
from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.engine.engine import Engine
from specmesh.inference.model import Cancellation
from specmesh.inference.models import transformers_model
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.serving.errors import ResourceExhaustedStatus

pytestmark = pytest.mark.gpu

LONG_TOKENS = 600
LITTLE = 0.01
"""A share of the memory that tests at once can spare."""
LARGEST, SMALLEST = 1 << 26, 512
"""Bytes of what fills up the memory that torch holds without use; it gives out none smaller."""


@contextmanager
def none_left() -> Iterator[None]:
    """Within it torch can allocate nothing on the GPU."""
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.0)
    taken = []
    try:
        size = LARGEST
        while size >= SMALLEST:
            with suppress(torch.OutOfMemoryError):
                while True:
                    taken.append(torch.empty(size, dtype=torch.uint8, device=device()))
            size //= 2
        yield
    finally:
        taken.clear()
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_by_default_kv_takes_a_share_of_what_is_free(monkeypatch):
    room = transformers_model._room_on(torch.device(device()))
    _, total = torch.cuda.mem_get_info()
    assert 0 < room <= transformers_model.FREE_SHARE * total
    monkeypatch.setattr(transformers_model, "FREE_SHARE", LITTLE)
    kv = load(models.DRAFTER, device(), cache_bytes=None)._memory.stores[0].kv
    assert kv.device.type == "cuda"
    # How much is free changes while other tests run.
    assert 0.1 * LITTLE * total < kv.nbytes <= LITTLE * total


@cache
def long_texts() -> list[tuple[int, ...]]:
    """Two of one length, by the target's tokenizer."""
    tokens = tuple(chain.from_iterable(prompts(load(models.TARGET, "cpu"))))
    return [tokens[:LONG_TOKENS], tokens[LONG_TOKENS : 2 * LONG_TOKENS]]


def load_for_long() -> TransformersModel:
    """A pass of a whole text allocates memory: it is longer than any that a graph was captured
    of."""
    return load(models.TARGET, device(), chunk_tokens=2 * LONG_TOKENS)


def test_a_forward_pass_without_memory_can_be_run_again():
    model = load_for_long()
    text, other = long_texts()
    sequence = model.open(text, Cancellation(), 0)
    with none_left(), pytest.raises(MemoryError, match="out of memory"):
        sequence.score(EMPTY)
    wanted = load_for_long().open(text, Cancellation(), 0).score(EMPTY)
    np.testing.assert_allclose(sequence.score(EMPTY), wanted, atol=1e-4)
    assert model.open(other, Cancellation(), 0).score(EMPTY).shape == wanted.shape


async def test_a_call_without_memory_is_refused_and_the_engine_goes_on():
    engine = Engine(load_for_long, max_queue=8)
    try:
        model = await engine.ready()
        text, other = long_texts()
        wanted = await next_token(engine, model, text)
        with none_left(), pytest.raises(ResourceExhaustedStatus) as refused:
            await next_token(engine, model, other)
        assert refused.value.reason == "OUT_OF_MEMORY"
        assert (await next_token(engine, model, text)).token_id == wanted.token_id
        assert not engine.is_broken
        assert model.pool is not None
        assert model.pool.num_used == 0
    finally:
        engine.stop()
