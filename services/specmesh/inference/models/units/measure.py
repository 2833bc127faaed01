"""Measurements at load of each unit's time for each kind of work, while all of them work.

The units are timed together, as they will be used: they share memory, and one may slow another down
(Ghidorah, Section III-C3).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.batch import BatchPart, pack
from specmesh.inference.engine.kv_store import KVShape, KVStore
from specmesh.inference.models.attention import PagedAttention
from specmesh.inference.models.units.attention import divide_attention
from specmesh.inference.models.units.crew import Crew
from specmesh.inference.models.units.plans.planner import ATTENTION, FixedPlan, Planner, Work
from specmesh.inference.models.units.plans.shares import Cost, Measured, alone, even
from specmesh.inference.models.units.whole import BySize, forward_of, judged

TOKENS = (1, 4, 16, 64, 256)
CONTEXTS = (64, 256, 1024, 4096)
TREE = 16
"""The number of new tokens in measurements of attention; they form a binary tree."""

MAX_MULTIPLICATIONS = 5e8
"""Larger work is not measured, except for one token, but divided like smaller work."""
SECONDS = 0.01
ROUNDS = 5
"""A measurement lasts ``SECONDS`` and at least this many rounds. The quickest round counts: other
load on the machine only adds time."""
LAYERS = 4
"""The number of layers of one size that are used in turn, so that no cache holds all of their
weights."""
PINGS = 100


@torch.inference_mode()
def measure(crew: Crew, model: Any, kv: KVShape) -> Planner:
    """Measure the units; return a plan for the layers of ``model``, which the crew holds, and for
    attention to ``kv``."""
    used = crew.plan
    overheads = [0.0, *(_ping(crew, number) for number in range(1, len(crew.names)))]
    measured: dict[Work, BySize] = {
        work: {
            tokens: _linear(crew, layers[:LAYERS], work, tokens, kv.dtype, overheads)
            for tokens in TOKENS
            if tokens == 1 or tokens * work.features * work.columns <= MAX_MULTIPLICATIONS
        }
        for work, layers in crew.works.items()
    }
    measured[ATTENTION] = _attention(crew, kv, model.config.num_attention_heads, overheads)
    judgement = judged(crew, measured, forward_of(model, kv))
    crew.use(used)
    crew.forget()  # which also drops whole layers
    return Planner(judgement, len(crew.names))


def _ping(crew: Crew, number: int) -> float:
    return min(crew.ping(number) for _ in range(PINGS))


def _linear(
    crew: Crew,
    layers: Sequence[int],
    work: Work,
    tokens: int,
    dtype: torch.dtype,
    overheads: Sequence[float],
) -> Measured:
    inputs = torch.rand(tokens, work.features).to(dtype)
    calls = [lambda layer=layer: crew.linear(layer, inputs) for layer in layers]
    crew.use(FixedPlan(alone(len(crew.names))))
    alone_s = min(wall_s for wall_s, _ in _rounds(calls, crew.linear_s))
    crew.use(FixedPlan(even(len(crew.names))))
    return _measured(alone_s, list(_rounds(calls, crew.linear_s)), overheads)


def _attention(
    crew: Crew, kv: KVShape, heads: int, overheads: Sequence[float]
) -> dict[int, Measured]:
    contexts = [keys for keys in CONTEXTS if keys + TREE <= crew.context] or [crew.context - TREE]
    num_blocks = -(-(contexts[-1] + TREE) // BLOCK_TOKENS)
    one = KVShape(1, kv.kv_heads, kv.head_dim, kv.dtype)
    store = KVStore(one, num_blocks, torch.device("cpu"), crew.memory.zeros)
    crew.share_kv(store.kv)
    query = torch.rand(1, heads, TREE, kv.head_dim).to(kv.dtype)
    crew.use(FixedPlan(even(len(crew.names))))
    return {keys: _attended(crew, store, keys, query, overheads) for keys in contexts}


def _attended(
    crew: Crew, store: KVStore, keys: int, query: torch.Tensor, overheads: Sequence[float]
) -> Measured:
    part = _tree_part(keys)
    batch = pack([part], ())
    new = query[:, : store.kv.shape[2]]
    plain = PagedAttention(store, batch, lambda: False)
    plain_s = min(
        wall_s for wall_s, _ in _rounds([lambda: plain(0, query, new, new, 1.0)], crew.attention_s)
    )
    (group,) = batch.groups
    divided = divide_attention(store, group, crew)
    if divided is None:  # no other unit attends
        return Measured(plain_s, tuple(Cost(plain_s, 0.0) for _ in overheads), math.inf)
    folded = query.reshape(1, store.kv.shape[2], -1, query.shape[3])
    calls = [lambda: divided(0, query, 1.0)]
    rounds = list(_rounds(calls, crew.attention_s))
    own_s = min(
        wall_s
        for wall_s, _ in _rounds([lambda: divided.new_part(0, folded, 1.0)], crew.attention_s)
    )
    without_own = [(wall_s - own_s, [taken[0] - own_s, *taken[1:]]) for wall_s, taken in rounds]
    return _measured(plain_s, without_own, [own_s, *overheads[1:]])


def _measured(
    alone_s: float,
    rounds: Sequence[tuple[float, Sequence[float]]],
    overheads: Sequence[float],
) -> Measured:
    """Return the measurement from evenly divided ``rounds``: the total seconds, and those of each
    unit."""
    count = len(overheads)
    taken = [max(1e-9, min(taken[unit] for _, taken in rounds)) for unit in range(count)]
    costs = [Cost(count * each, overhead) for each, overhead in zip(taken, overheads, strict=True)]
    ends_s = max(cost.whole_s / count + cost.overhead_s for cost in costs)
    return Measured(alone_s, tuple(costs), max(0.0, min(wall for wall, _ in rounds) - ends_s))


def _rounds(
    calls: Sequence[Callable[[], object]], taken_s: list[float]
) -> Iterator[tuple[float, Sequence[float]]]:
    """Yield the seconds of each of many ``calls`` in turn, and its increase of ``taken_s``."""
    for call in calls:
        call()
    end = time.perf_counter() + SECONDS
    done = 0
    while done < ROUNDS or time.perf_counter() < end:
        before = list(taken_s)
        began = time.perf_counter()
        calls[done % len(calls)]()
        wall_s = time.perf_counter() - began
        yield wall_s, [now - then for now, then in zip(taken_s, before, strict=True)]
        done += 1


def _tree_part(keys: int) -> BatchPart:
    """Return a binary tree of new tokens after ``keys`` others, in consecutive slots."""
    attends = np.zeros((TREE, keys + TREE), np.bool_)
    attends[:, :keys] = True
    for node in range(TREE):
        if node:
            attends[node] = attends[(node - 1) // 2]
        attends[node, keys + node] = True
    length = keys + TREE
    slots = range(keys, length)
    blocks = np.arange(-(-length // BLOCK_TOKENS))
    return BatchPart([0] * TREE, slots, slots, slots, range(0), blocks, length, attends)
