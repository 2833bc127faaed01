"""A long context: what a verification behind it takes, how an answer begins, and what memory it
needs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from statistics import median

import psutil

from specmesh.bench.vocabulary.meshes import (
    DRAFTER_MS,
    LOOKAHEAD,
    SPECULATION,
    TARGET_MS,
    ServedMesh,
)
from specmesh.client import GenerationStream
from specmesh.decoding.simulated.hashed import SimulatedTarget
from specmesh.tools.kit.experiment import SAMPLED, Experiment

_SHORT_TOKENS = 16
_NUM_HELD = 2
"""Number of long answers under way when their memory is counted; the simulated target caches no
more contexts of 131,072 tokens."""
_ENDLESS = 4096
"""More tokens than an answer gets before it is closed."""
CLIENT = "client"


@dataclass(frozen=True, slots=True)
class ContextFigures:
    """A prompt of ``prompt_tokens``: medians of several answers, on a vocabulary of ``entries``.

    ``verifier_ms`` is the verifier's processor time of a verification, and ``short_verifier_ms``
    the same behind a prompt of a few tokens. ``first_token_ms`` is the time to the first token,
    nothing of the prompt being cached. ``prefill_ms`` is the part of it in which drafter and target
    read the prompt one after the other, which simulated models do by hashing it, and ``start_ms``
    the rest. ``memory_mb`` is the memory that an answer adds, in 10^6 bytes, by process.
    """

    prompt_tokens: int
    entries: int
    verifier_ms: float
    short_verifier_ms: float
    first_token_ms: float
    prefill_ms: float
    start_ms: float
    memory_mb: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Answered:
    verifier_ms: float
    first_token_ms: float
    prefill_ms: float


async def measure_context(
    mesh: ServedMesh, num_prompt_tokens: int, num_tokens: int, num_rounds: int
) -> ContextFigures:
    """Measure answers of ``num_tokens`` one by one, long and short prompts in turns. Raises
    SpecmeshError."""
    asking = _FreshPrompts(mesh, num_tokens)
    await asking.answered(asking.prompt(_SHORT_TOKENS))  # It opens connections.
    memory_mb = await asking.memory_mb(num_prompt_tokens)  # Before anything long is cached.
    found: dict[int, list[_Answered]] = {_SHORT_TOKENS: [], num_prompt_tokens: []}
    for _ in range(num_rounds):
        for length, answers in found.items():
            answers.append(await asking.answered(asking.prompt(length)))
    short, long = found.values()
    return ContextFigures(
        prompt_tokens=num_prompt_tokens,
        entries=mesh.entries,
        verifier_ms=median(each.verifier_ms for each in long),
        short_verifier_ms=median(each.verifier_ms for each in short),
        first_token_ms=median(each.first_token_ms for each in long),
        prefill_ms=median(each.prefill_ms for each in long),
        start_ms=median(each.first_token_ms - each.prefill_ms for each in long),
        memory_mb=memory_mb,
    )


class _FreshPrompts:
    """Requests with prompts that are all new to the mesh."""

    def __init__(self, mesh: ServedMesh, num_tokens: int) -> None:
        self._mesh = mesh
        self._experiment = Experiment(prompts=(), speculations=[SPECULATION], num_tokens=num_tokens)
        self._num_asked = 0

    def prompt(self, length: int) -> Sequence[int]:
        """Return a prompt that begins with another token than those before it."""
        self._num_asked += 1
        step = 2 * self._num_asked + 1
        return [number * step % self._mesh.entries for number in range(1, length + 1)]

    async def answered(self, prompt: Sequence[int]) -> _Answered:
        """Return the figures of an answer to ``prompt``."""
        hashed_s = _hashing_s(prompt, self._mesh.entries)
        began, used_s, first_s = time.perf_counter(), 0.0, 0.0
        stream = self._ask(prompt)
        async for _ in stream:
            if not first_s:
                first_s = time.perf_counter() - began
                used_s = self._mesh.verifier_s()
        used_s = self._mesh.verifier_s() - used_s
        return _Answered(
            verifier_ms=used_s * 1e3 / (stream.result.stats.num_verify_calls - 1),
            first_token_ms=first_s * 1e3,
            prefill_ms=2 * hashed_s * 1e3 + LOOKAHEAD * DRAFTER_MS + TARGET_MS,
        )

    async def memory_mb(self, length: int) -> Mapping[str, float]:
        """Return the memory that an answer to a prompt of ``length`` adds to each process."""
        before = self._memory()
        async with AsyncExitStack() as stack:
            answers = [
                await stack.enter_async_context(aclosing(self._ask(self.prompt(length), _ENDLESS)))
                for _ in range(_NUM_HELD)
            ]
            await asyncio.gather(*map(_begin, answers))
            after = self._memory()
        return {name: (after[name] - private) / _NUM_HELD / 1e6 for name, private in before.items()}

    def _ask(self, prompt: Sequence[int], num_tokens: int | None = None) -> GenerationStream:
        client, experiment = self._mesh.client, self._experiment
        return experiment.ask(client, prompt, SPECULATION, SAMPLED, num_tokens)

    def _memory(self) -> dict[str, int]:
        pids = {**self._mesh.pids, CLIENT: os.getpid()}
        return {name: psutil.Process(pid).memory_full_info().uss for name, pid in pids.items()}


def _hashing_s(prompt: Sequence[int], num_entries: int) -> float:
    """Return the seconds of a core that a simulated model needs to read ``prompt``."""
    target = SimulatedTarget(vocab_size=num_entries)
    began = time.thread_time()
    target.after(target.start, prompt)
    return time.thread_time() - began


async def _begin(answer: GenerationStream) -> None:
    await anext(aiter(answer))
