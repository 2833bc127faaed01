"""The measurements of ``specmesh bench engine --random``, all in one process on one device."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any

import numpy as np

from specmesh.bench.engine.asking import forward_ms
from specmesh.bench.engine.device.shapes import ModelShape, describe, random_model, read_bytes
from specmesh.bench.engine.ours import answer_all
from specmesh.bench.engine.plan import PROMPT_TOKENS, WIDTH_PREFIX_TOKENS, WIDTHS
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.engine.engine import Engine

_COPY_BYTES = 1 << 31
_COPIES = 10
_REPLAYS = 10
_WIDTH_ROUNDS = 15
_MAX_QUEUE = 1024
_WARM_UP_TOKENS = 4


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """The user's options: a ``shape`` in ``dtype`` on ``device``; ``streams`` are the numbers of
    concurrent streams, with answers of ``num_tokens``."""

    shape: ModelShape
    dtype: str
    device: str
    streams: tuple[int, ...]
    num_tokens: int
    rounds: int
    seed: int


@dataclass(frozen=True, slots=True)
class OnDevice:
    """The measurements.

    ``copy_bytes_per_s`` counts bytes read and written. The floor of a pass of one token is
    ``weight_bytes``, each read once at that speed. ``device_ms`` are captured passes by their
    numbers of tokens, one after the other, as the device alone computes them. ``generate_ms`` is a
    token of transformers' generate with one stream, ``token_ms`` one of ours by the number of
    streams, ``width_ms`` a verification by its width, and ``load_s`` the time to compile, capture
    and check.
    """

    device_name: str
    weight_bytes: int
    copy_bytes_per_s: float
    load_s: float
    device_ms: Mapping[int, float]
    generate_ms: float
    token_ms: Mapping[int, float]
    width_ms: Mapping[int, float]

    @property
    def floor_ms(self) -> float:
        """The time in which the device's memory can be read once for all weights."""
        return self.weight_bytes / self.copy_bytes_per_s * 1e3


def measure(plan: DevicePlan) -> OnDevice:
    """Measure generate, then the engine, with the same random weights."""
    import torch

    from specmesh.inference.models.transformers_model import TransformersModel

    model = random_model(plan.shape, plan.dtype, plan.device, plan.seed)
    weight_bytes, copied = read_bytes(model), _copy_bytes_per_s(model.device)
    prompts = _prompts(plan, model.config.vocab_size)
    generate_ms = _generate_ms(plan, model, prompts[0])
    description = describe(model, plan.shape, plan.dtype)
    began = time.perf_counter()
    served = TransformersModel.of(model, description, cache_bytes=_cache_bytes(plan, model))
    load_s = time.perf_counter() - began
    device_ms = _device_ms(served)
    engine = Engine(lambda: served, _MAX_QUEUE)
    try:
        token_ms, width_ms = asyncio.run(_ours(plan, engine, prompts))
    finally:
        engine.stop()
    name = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else "cpu"
    return OnDevice(name, weight_bytes, copied, load_s, device_ms, generate_ms, token_ms, width_ms)


async def _ours(
    plan: DevicePlan, engine: Engine, prompts: Sequence[list[int]]
) -> tuple[dict[int, float], dict[int, float]]:
    model = await engine.ready()
    token_ms = {}
    unused = iter(prompts)  # A prompt that had an answer before would find it in the cache.
    for count in plan.streams:
        await answer_all(engine, list(islice(unused, count)), _WARM_UP_TOKENS, count)
        found = []
        for _ in range(plan.rounds):
            asked = list(islice(unused, count))
            answers = await answer_all(engine, asked, plan.num_tokens, count)
            first_s = max(answer.token_s[0] for answer in answers)
            last_s = max(answer.token_s[-1] for answer in answers)
            found.append((last_s - first_s) / (plan.num_tokens - 1) * 1e3)
        token_ms[count] = median(found)
    times: dict[int, list[float]] = {width: [] for width in WIDTHS}
    text = prompts[-1]
    prefix, drafts = text[:WIDTH_PREFIX_TOKENS], text[WIDTH_PREFIX_TOKENS:]
    for number in range(_WIDTH_ROUNDS + 1):
        for width, each in times.items():
            taken = await forward_ms(engine, model, prefix, TokenTree.chain(drafts[: width - 1]))
            if number:
                each.append(taken)
    return token_ms, {width: median(each) for width, each in times.items()}


def _prompts(plan: DevicePlan, vocab_size: int) -> list[list[int]]:
    """Return random prompts for all answers, and a text for the widths."""
    rng = np.random.default_rng(plan.seed)
    num_answers = sum(plan.streams) * (plan.rounds + 1)
    lengths = [*([PROMPT_TOKENS[1]] * num_answers), WIDTH_PREFIX_TOKENS + WIDTHS[-1]]
    return [rng.integers(1, vocab_size, length).tolist() for length in lengths]


def _cache_bytes(plan: DevicePlan, model: Any) -> int:
    """Return the bytes of KV for twice the tokens of all streams."""
    from specmesh.decoding.prefix import BLOCK_TOKENS
    from specmesh.inference.models.transformers_model import kv_shape

    tokens = max(plan.streams) * (PROMPT_TOKENS[1] + plan.num_tokens) + 2 * WIDTH_PREFIX_TOKENS
    return 2 * tokens // BLOCK_TOKENS * kv_shape(model).block_bytes


def _generate_ms(plan: DevicePlan, model: Any, prompt: Sequence[int]) -> float:
    import torch

    tokens = torch.tensor([prompt], device=model.device)
    found = []
    for _ in range(plan.rounds + 1):
        times = []
        for count in (1, plan.num_tokens):
            _synchronize(model.device)
            began = time.perf_counter()
            model.generate(tokens, max_new_tokens=count, min_new_tokens=count, do_sample=False)
            _synchronize(model.device)
            times.append(time.perf_counter() - began)
        found.append((times[1] - times[0]) / (plan.num_tokens - 1) * 1e3)
    return median(found[1:])  # the first round warms up


def _device_ms(served: Any) -> dict[int, float]:
    """Return the time of each captured pass, without its launch; nothing where there is none."""
    import torch

    from specmesh.inference.models.cuda.graph_passes import GraphPasses

    times: dict[int, float] = {}
    if not isinstance(served.passes, GraphPasses):
        return times
    for num_tokens, recording in served.passes.recordings.items():
        events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
        begin, end = events
        recording.replay()
        begin.record()
        for _ in range(_REPLAYS):
            recording.replay()
        end.record()
        end.synchronize()
        times[num_tokens] = begin.elapsed_time(end) / _REPLAYS
    return times


def _copy_bytes_per_s(device: Any) -> float:
    """Return the speed of a copy within the device's memory, counting bytes read and written."""
    import torch

    num_bytes = _COPY_BYTES if device.type == "cuda" else _COPY_BYTES >> 5
    source = torch.ones(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(_COPIES):
        _synchronize(device)
        began = time.perf_counter()
        target.copy_(source)
        _synchronize(device)
        times.append(time.perf_counter() - began)
    return 2 * num_bytes / median(times)


def _synchronize(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
