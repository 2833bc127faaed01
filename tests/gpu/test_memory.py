"""The memory of a GPU: what KV takes of it by default, and what follows when it runs out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

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
from specmesh.serving.errors import ResourceExhaustedStatus

pytestmark = pytest.mark.gpu

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
    kv = load(models.DRAFTER, device(), cache_bytes=None)._store.kv
    assert kv.device.type == "cuda"
    # How much is free changes while other tests run.
    assert 0.1 * LITTLE * total < kv.nbytes <= LITTLE * total


def test_a_forward_pass_without_memory_can_be_run_again():
    model = load(models.TARGET, device())
    prompt, other, *_ = prompts(model)
    sequence = model.open(prompt, Cancellation(), 0)
    with none_left(), pytest.raises(MemoryError, match="out of memory"):
        sequence.score(EMPTY)
    wanted = load(models.TARGET, device()).open(prompt, Cancellation(), 0).score(EMPTY)
    assert (sequence.score(EMPTY) == wanted).all()
    assert model.open(other, Cancellation(), 0).score(EMPTY).shape == wanted.shape


async def test_a_call_without_memory_is_refused_and_the_engine_goes_on():
    engine = Engine(partial(load, models.TARGET, device()), max_queue=8)
    try:
        model = await engine.ready()
        prompt, other, *_ = prompts(model)
        wanted = await next_token(engine, model, prompt)
        with none_left(), pytest.raises(ResourceExhaustedStatus) as refused:
            await next_token(engine, model, other)
        assert refused.value.reason == "OUT_OF_MEMORY"
        assert (await next_token(engine, model, prompt)).token_id == wanted.token_id
        assert not engine.is_broken
        assert model.pool is not None
        assert model.pool.num_used == 0
    finally:
        engine.stop()
