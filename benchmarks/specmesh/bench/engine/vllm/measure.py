"""The measurement: programs compute in turns, so that a slow moment of the machine affects all of
them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
from rich.console import Console

from specmesh.bench.engine.plan import PROMPT_TOKENS, EnginePlan
from specmesh.bench.engine.prompts import Prompts
from specmesh.bench.engine.vllm import programs
from specmesh.bench.engine.vllm.programs import CACHE_BYTES, SessionsLoad
from specmesh.bench.engine.vllm.sessions import NUM_DRAFT_TOKENS, NUM_TEXT_TOKENS, ROUNDS
from specmesh.bench.engine.vllm.waiting import PrefixWaits, measure_waits
from specmesh.cli.local.logs import serving_address
from specmesh.cli.local.process import PORT, ProcessSpec
from specmesh.cli.local.supervisor import Supervisor
from specmesh.tools.kit.processes import processes

T = TypeVar("T")

TURN_ROUNDS = 4
_START_SECONDS = 300.0
_STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class VerificationTimes:
    """The median milliseconds of a verification of several sessions together, by program."""

    vllm_ms: float
    called_ms: float
    """The same over gRPC."""
    ours_ms: float
    own_step_ms: float
    """A decoding step of vLLM's own, without draft tokens, timed in turns with it."""

    @property
    def of_own_step(self) -> float:
        """Return the time of a verification in decoding steps of vLLM's own."""
        return self.vllm_ms / self.own_step_ms


Verifications = Mapping[int, Mapping[int, VerificationTimes]]
"""Verifications by number of sessions, then of draft tokens."""


async def measure(plan: EnginePlan, console: Console) -> tuple[Verifications, PrefixWaits]:
    """Run everything, showing the current step on ``console``.

    Raises ``ModelNotLoadable``, and ``StartError`` if the verifier's process doesn't serve.
    """
    load = _load(plan)
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="specmesh-engine-")))
        status = stack.enter_context(console.status("loading the model with vLLM and without"))
        supervisor = Supervisor(
            directory,
            start_timeout_s=_START_SECONDS,
            stop_timeout_s=_STOP_SECONDS,
            report=console.print,
        )
        stack.push_async_callback(supervisor.stop)
        decoding, vllm, ours, calls = (stack.enter_context(processes(1)) for _ in range(4))
        _, _, _, (address,) = await asyncio.gather(
            _in(decoding, programs.start_decoding, load),
            _in(vllm, programs.start_vllm, load),
            _in(ours, programs.start_ours, load),
            supervisor.start(_verifier(plan)),
        )
        await _in(calls, programs.start_calls, load, address)
        status.update("verifications while a prefix is read")
        waits = await _in(calls, measure_waits, load, address)
        found: dict[int, dict[int, VerificationTimes]] = {}
        for number in plan.streams:
            found[number] = {}
            for drafted in NUM_DRAFT_TOKENS:
                status.update(f"concurrent sessions: {number}, draft tokens: {drafted}")
                found[number][drafted] = await _side_by_side(
                    number, drafted, decoding=decoding, vllm=vllm, called=calls, ours=ours
                )
    return found, waits


async def _side_by_side(
    number: int,
    drafted: int,
    *,
    decoding: ProcessPoolExecutor,
    **verifying: ProcessPoolExecutor,
) -> VerificationTimes:
    own: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in verifying}
    for _ in range(ROUNDS[drafted] // TURN_ROUNDS):
        own += await _in(decoding, programs.turn, number, 0, TURN_ROUNDS)
        for name, process in verifying.items():
            times[name] += await _in(process, programs.turn, number, drafted, TURN_ROUNDS)
    return VerificationTimes(
        own_step_ms=median(own), **{f"{name}_ms": median(found) for name, found in times.items()}
    )


async def _in(process: ProcessPoolExecutor, function: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.wrap_future(process.submit(function, *arguments))


def _load(plan: EnginePlan) -> SessionsLoad:
    prompts = Prompts(plan.model, plan.seed)
    count = max(plan.streams)
    lengths = np.random.default_rng([plan.seed, 5]).integers(*PROMPT_TOKENS, count, endpoint=True)
    return SessionsLoad(plan, prompts.several(NUM_TEXT_TOKENS, count), lengths.tolist())


def _verifier(plan: EnginePlan) -> ProcessSpec:
    options = (
        *("--backend", "vllm", "--model", plan.model, "--device", plan.device, "--port", PORT),
        *("--dtype", plan.dtype, "--threads", str(plan.threads)),
        *("--cache-bytes", str(CACHE_BYTES)),
    )
    command = (sys.executable, "-P", "-m", "specmesh.verifier", *options)
    return ProcessSpec("verifier", command, serving_address)
