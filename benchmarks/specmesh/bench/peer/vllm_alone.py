"""vLLM by itself, as its users call it from Python, in this process between its turns."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specmesh.bench.peer.plan import PeerPlan
from specmesh.inference.model import ModelNotLoadable

CACHE_BYTES = 2 << 30
ENVIRONMENT = {
    "VLLM_CONFIGURE_LOGGING": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in process
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the mesh has the same cores
}
"""Environment variables that vLLM reads when it is imported."""

_engine: list[Any] = []  # The ``vllm.LLM`` of this process.


@dataclass(frozen=True, slots=True)
class TimedAnswers:
    """Answers that were made together, and the time until the last of them was complete."""

    token_ids: Sequence[Sequence[int]]
    seconds: float
    num_cached_tokens: int | None = None
    """Tokens of the prompts that vLLM had kept; None from a mesh."""


def start(plan: PeerPlan) -> None:
    """Load the target: float32, without compiling, which takes minutes on CPUs. Raises
    ``ModelNotLoadable``."""
    logging.disable(logging.WARNING)  # vLLM logs a lot as it loads.
    os.environ.update(ENVIRONMENT, OMP_NUM_THREADS=str(plan.threads))
    from vllm import LLM

    try:
        engine = LLM(
            plan.target,
            dtype="float32",
            enforce_eager=True,
            max_num_seqs=max(plan.streams),
            max_model_len=plan.num_context_tokens,
            kv_cache_memory_bytes=CACHE_BYTES,
            generation_config="vllm",
        )
    except Exception as error:  # of many types, some of which cannot be sent to another process
        raise ModelNotLoadable(f"vLLM cannot load {plan.target}: {error}") from None
    _engine.append(engine)


def answer(prompts: Sequence[Sequence[int]], num_tokens: int, temperature: float) -> TimedAnswers:
    """Answer all ``prompts`` at the same time."""
    from vllm import SamplingParams

    params = SamplingParams(temperature=temperature, max_tokens=num_tokens, ignore_eos=True)
    asked = [{"prompt_token_ids": list(each)} for each in prompts]
    began = time.perf_counter()
    found = _engine[0].generate(asked, params, use_tqdm=False)
    seconds = time.perf_counter() - began
    return TimedAnswers(
        [list(each.outputs[0].token_ids) for each in found],
        seconds,
        sum(each.num_cached_tokens or 0 for each in found),
    )
