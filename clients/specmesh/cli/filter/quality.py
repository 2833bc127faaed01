"""How good texts are, asked of a process that has the models."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from dataclasses import dataclass

from specmesh.cli.local.models import RealModels
from specmesh.cli.local.process import StartError

Answers = Sequence[Sequence[int]]
"""Token ids of one answer for each prompt."""

_MODULE = "specmesh.inference.fidelity"


@dataclass(frozen=True, slots=True)
class Quality:
    """Means over the tokens of some answers, each token after what its own answer has before.

    ``log_probability`` is the target's, in nats; ``agreement`` the share that it would have
    chosen at temperature 0.
    """

    log_probability: float
    agreement: float


@dataclass(frozen=True, slots=True)
class Judged:
    """``qualities`` are of the answers asked about, ``drafter_answers`` the drafter's own."""

    qualities: Sequence[Quality]
    drafter_answers: Answers


async def judge(
    models: RealModels, prompts: Sequence[str], answers: Sequence[Answers], num_tokens: int
) -> Judged:
    """Ask about several lists of greedy answers. Raises StartError if the process fails."""
    asked = {
        "target": models.target,
        "drafter": models.drafter_names[0],
        "prompts": prompts,
        "num_tokens": num_tokens,
        "answers": answers,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", _MODULE, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    try:
        found, complaint = await process.communicate(json.dumps(asked).encode())
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise StartError(f"{_MODULE} failed:\n{complaint.decode(errors='replace')}")
    judged = json.loads(found)
    return Judged([Quality(**each) for each in judged["fidelity"]], judged["drafter_answers"])
