"""MODEL CACHE_BYTES: prompts that want three times the cache, by 16 sessions at once.

Run in a process of its own, which prints what that takes as one JSON object.
"""

import asyncio
import gc
import json
import sys
from pathlib import Path

import numpy as np

from specmesh.bench.engine.asking import next_token
from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.inference.engine.engine import Engine
from specmesh.inference.models.transformers_model import TransformersModel

SESSIONS = 16
PROMPT_TOKENS = 240


def resident_bytes(what: str) -> int:
    """``VmRSS``, what the process has in memory, or ``VmHWM``, the most it ever had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == what:
            return int(value.split()[0]) * 1024
    raise AssertionError(what)


def forget_peak() -> int:
    """From here on "the most it ever had" is meant; what it has now."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident_bytes("VmRSS")


def load(folder: str, cache_bytes: int) -> TransformersModel:
    return TransformersModel.load(folder, dtype="float32", device="cpu", cache_bytes=cache_bytes)


async def main(folder: str, cache_bytes: int) -> None:
    engine = Engine(lambda: load(folder, cache_bytes), max_queue=SESSIONS)
    model = await engine.ready()
    random = np.random.default_rng(0)
    num_prompts = 3 * model.pool.num_blocks * BLOCK_TOKENS // PROMPT_TOKENS
    prompts = iter(random.integers(0, 60, (num_prompts, PROMPT_TOKENS)).tolist())
    gc.collect()
    before = forget_peak()

    async def session() -> None:
        for prompt in prompts:
            await next_token(engine, model, prompt)

    async with asyncio.TaskGroup() as sessions:
        for _ in range(SESSIONS):
            sessions.create_task(session())
    figures = {
        "held_bytes": resident_bytes("VmRSS") - before,
        "peak_bytes": resident_bytes("VmHWM") - before,
        "evicted": model.pool.num_evicted,
        "blocks": model.pool.num_blocks,
        "used": model.pool.num_used,
    }
    json.dump(figures, sys.stdout)
    engine.stop()


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
