"""Copies of KV that are carried out together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specmesh.inference.engine.batch import Copy
from specmesh.inference.engine.kv_memory import KVMemory
from specmesh.inference.engine.kv_store import KVShape

NUM_BLOCKS = 4


def memory() -> KVMemory:
    """Each slot of which holds its number."""
    found = KVMemory([KVShape(1, 1, 1, torch.float32)], NUM_BLOCKS, torch.device("cpu"))
    found.stores[0].kv[:] = torch.arange(16.0 * NUM_BLOCKS)[:, None, None]
    return found


def copy(sources: list[int], destinations: list[int]) -> Copy:
    return Copy(np.array(sources), np.array(destinations))


def held(memory: KVMemory) -> list[int]:
    return memory.stores[0].kv[0, :, 0, 0].int().tolist()


def test_copies_are_as_if_carried_out_in_order():
    rng = np.random.default_rng(0)
    for _ in range(200):
        copies = []
        for _ in range(rng.integers(1, 6)):
            count = rng.integers(1, 5)
            slots = [rng.choice(16, count, replace=False) for _ in range(2)]
            copies.append(Copy(*slots))
        together, apart = memory(), memory()
        together.ordered += copies
        together.carry_out(tuple(together.ordered))
        for each in copies:
            apart.carry_out((each,))
        assert held(together) == held(apart)
        assert not together.ordered


def test_copies_that_do_not_meet_are_one(monkeypatch):
    found = memory()
    calls = []
    monkeypatch.setattr(found, "_copy", calls.append)
    found.carry_out((copy([0, 1], [20, 21]), copy([0], [40]), copy([2], [41])))
    assert [each.sources.tolist() for each in calls] == [[0, 1, 0, 2]]
    found.carry_out((copy([0], [20]), copy([20], [21])))
    assert len(calls) == 3


def test_those_that_are_left_stay_ordered_if_memory_runs_out(monkeypatch):
    found = memory()
    found.ordered += [copy([0], [20]), copy([20], [21])]

    def fail_at_second(each: Copy) -> None:
        if each.destinations.tolist() == [21]:
            raise MemoryError

    monkeypatch.setattr(found, "_copy", fail_at_second)
    with pytest.raises(MemoryError):
        found.carry_out(tuple(found.ordered))
    assert [each.destinations.tolist() for each in found.ordered] == [[21]]
