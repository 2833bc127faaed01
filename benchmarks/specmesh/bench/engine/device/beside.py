"""Several models in processes of their own on one device: what each pass takes alone, and together.

Processes take turns on a GPU, unless something else, such as NVIDIA's MPS, divides it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

from specmesh.bench.engine.asking import GREEDY
from specmesh.bench.engine.device.shapes import ModelShape, describe, random_model
from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.tools.kit.processes import processes

_PREFIX_TOKENS = 256
_WIDTH = 8
_CACHE_TOKENS = 4096
_SECONDS = 2.0
_LEAD_S = 0.5
"""The time in which all processes are told to begin."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One of the models: the median of a pass of 8 tokens, alone and together with all others."""

    shape: ModelShape
    alone_ms: float
    together_ms: float


def measure_beside(
    shapes: Sequence[ModelShape], dtype: str, device: str, seed: int
) -> list[Neighbour]:
    """Measure the passes of models of all ``shapes``, each in its process."""
    with ExitStack() as stack:
        # One pool for each, since a model stays in the process that made it.
        pools = [stack.enter_context(processes(1)) for _ in shapes]
        loading = [
            pool.submit(_load, shape, dtype, device, seed)
            for pool, shape in zip(pools, shapes, strict=True)
        ]
        for each in loading:
            each.result()
        alone = [pool.submit(_pass_ms, time.time()).result() for pool in pools]
        begin_s = time.time() + _LEAD_S
        running = [pool.submit(_pass_ms, begin_s) for pool in pools]
        together = [each.result() for each in running]
    return list(map(Neighbour, shapes, alone, together))


_models: list[Any] = []
"""The model of this process."""


def _load(shape: ModelShape, dtype: str, device: str, seed: int) -> None:
    from specmesh.inference.models.transformers_model import TransformersModel, kv_shape

    model = random_model(shape, dtype, device, seed)
    cache_bytes = _CACHE_TOKENS // BLOCK_TOKENS * kv_shape(model).block_bytes
    description = describe(model, shape, dtype)
    _models.append(TransformersModel.of(model, description, cache_bytes=cache_bytes))


def _pass_ms(begin_s: float) -> float:
    """Run passes from the time ``begin_s`` on for a while; return the median of their times."""
    from specmesh.decoding.own_tokens import OwnTokens
    from specmesh.decoding.trees.tree import TokenTree
    from specmesh.inference.model import Cancellation, ForwardRequest

    (model,) = _models
    prefix, tree = [3] * _PREFIX_TOKENS, TokenTree.chain([5] * (_WIDTH - 1))
    time.sleep(max(0.0, begin_s - time.time()))
    times = []
    ends_s = time.perf_counter() + _SECONDS
    while time.perf_counter() < ends_s:
        sequence = model.open(prefix, Cancellation(), len(tree))
        began = time.perf_counter()
        model.forward([ForwardRequest(sequence, tree, OwnTokens.of(GREEDY, _PREFIX_TOKENS))])
        times.append((time.perf_counter() - began) * 1e3)
        sequence.close(())
    return median(times)
