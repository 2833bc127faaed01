"""A random model with a large vocabulary in our engine, and in vLLM where that is installed:
sampling beside greedy decoding, in turns."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import Any, NamedTuple

from specmesh.bench.engine.asking import GREEDY, next_token
from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.sampling import Sampling
from specmesh.inference.engine.engine import Engine
from specmesh.inference.model import LanguageModel
from specmesh.inference.models.simulated.tokenizer import simulated_tokenizer
from specmesh.tools.kit.experiment import SAMPLED
from specmesh.tools.kit.processes import processes

HIDDEN_SIZE = 64
_PROMPT_TOKENS = 16
_SPREAD = 0.4
"""The spread of the weights. It gives logits one of about 3, as trained models have."""
_MAX_QUEUE = 1024
_CACHE_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class RandomModel:
    """A random model of ``entries`` tokens in ``folder``; ``threads`` compute a forward."""

    folder: str
    entries: int
    context_tokens: int
    threads: int


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """Tokens per second in the engine's process with a number of concurrent streams, as medians
    over the rounds; ``ratio`` is the median of the ratio of sampled to greedy. ``processor_ratio``
    is that of tokens per second of a core, on which other load on the machine has little effect.
    """

    engine: str
    streams: int
    greedy_tokens_per_s: float
    sampled_tokens_per_s: float
    ratio: float
    processor_ratio: float


class _Speed(NamedTuple):
    tokens_per_s: float
    tokens_per_core_s: float


def measure_engines(
    model: RandomModel, streams: Sequence[int], num_tokens: int, num_rounds: int
) -> list[EngineFigures]:
    """Measure every engine that is installed, one after the other."""
    found = []
    for name, load in _loaders().items():
        with processes(1) as process:
            process.submit(_start, load, model).result()
            found += [_measure(process, name, each, num_tokens, num_rounds) for each in streams]
            process.submit(_stop).result()
    return found


def _loaders() -> dict[str, Callable[[RandomModel], LanguageModel]]:
    vllm = {"vllm": _load_vllm} if find_spec("vllm") else {}
    return {"transformers": _load_ours, **vllm}


def _measure(
    process: ProcessPoolExecutor, engine: str, num_streams: int, num_tokens: int, num_rounds: int
) -> EngineFigures:
    greedy: list[_Speed] = []
    sampled: list[_Speed] = []
    for number in range(num_rounds + 1):
        for temperature, found in ((0.0, greedy), (SAMPLED, sampled)):
            figure = process.submit(_turn, temperature, num_streams, num_tokens).result()
            if number:  # The first round warms up.
                found.append(figure)
    return EngineFigures(
        engine=engine,
        streams=num_streams,
        greedy_tokens_per_s=median(each.tokens_per_s for each in greedy),
        sampled_tokens_per_s=median(each.tokens_per_s for each in sampled),
        ratio=median(b.tokens_per_s / a.tokens_per_s for a, b in zip(greedy, sampled, strict=True)),
        processor_ratio=median(
            b.tokens_per_core_s / a.tokens_per_core_s for a, b in zip(greedy, sampled, strict=True)
        ),
    )


def save_random(model: RandomModel) -> None:
    """Save a model with random weights, and a tokenizer, in the model's folder."""
    import torch
    import transformers

    library: Any = transformers
    library.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    config = library.LlamaConfig(
        vocab_size=model.entries,
        hidden_size=HIDDEN_SIZE,
        intermediate_size=2 * HIDDEN_SIZE,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=model.context_tokens,
        initializer_range=_SPREAD,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
    )
    library.AutoModelForCausalLM.from_config(config).save_pretrained(model.folder)
    tokenizer = simulated_tokenizer(model.entries)
    library.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(model.folder)


# In the process of an engine.

_engine: list[Engine] = []


def _start(load: Callable[[RandomModel], LanguageModel], model: RandomModel) -> None:
    engine = Engine(lambda: load(model), _MAX_QUEUE)
    asyncio.run(engine.ready())
    _engine.append(engine)


def _turn(temperature: float, num_streams: int, num_tokens: int) -> _Speed:
    """Return the speed of concurrent answers."""
    began, used_s = time.perf_counter(), time.process_time()
    asyncio.run(_answers(_engine[0], temperature, num_streams, num_tokens))
    seconds, used_s = time.perf_counter() - began, time.process_time() - used_s
    tokens = num_streams * num_tokens
    return _Speed(tokens / seconds, tokens / used_s)


def _stop() -> None:
    _engine.pop().stop()


async def _answers(engine: Engine, temperature: float, num_streams: int, num_tokens: int) -> None:
    model = await engine.ready()

    async def answer(number: int) -> None:
        sampling = Sampling(temperature, seed=number) if temperature else GREEDY
        prefix = PrefixChain(range(number, number + _PROMPT_TOKENS))
        for _ in range(num_tokens):
            prefix.append([(await next_token(engine, model, prefix, sampling)).token_id])

    await asyncio.gather(*map(answer, range(num_streams)))


def _load_ours(model: RandomModel) -> LanguageModel:
    import torch

    from specmesh.inference.models.transformers_model import TransformersModel

    torch.set_num_threads(model.threads)  # This applies to the calling thread, the engine's.
    return TransformersModel.load(
        model.folder, dtype="float32", device="cpu", cache_bytes=_CACHE_BYTES
    )


def _load_vllm(model: RandomModel) -> LanguageModel:
    from specmesh.inference.models.vllm.model import VllmModel

    logging.disable(logging.WARNING)  # vLLM logs a lot as it loads.
    return VllmModel.load(
        model.folder,
        dtype="float32",
        device="cpu",
        num_threads=model.threads,
        cache_bytes=_CACHE_BYTES,
        tensor_parallel=1,
        chat_template=None,
    )
