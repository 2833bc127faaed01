"""The models to serve, requests for them, and the right answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Protocol

from specmesh.bench.chaos.judging.truth import (
    DRAWING_TEMPERATURE,
    RecordedTruth,
    SimulatedTruth,
    TextKey,
    Truth,
)
from specmesh.bench.chaos.requests import ChaosRequest, draw, magnitude
from specmesh.cli.local.models import Models, RealModels, WaitingModels
from specmesh.client import AsyncClient
from specmesh.decoding.simulated.hashed import SimulatedTarget
from specmesh.models import DRAFTER, TARGET, heads, path
from specmesh.orchestrator.admission.request_limits import SEED_BITS
from specmesh.tools.kit.prompts import read_prompts

_TARGET_MS = 8.0
_DRAFTER_MS = 2.0
_ACCEPTANCE = 0.8
_HEADS_DEPTH = 5
_HEADS_MS = 1.0
_LONGEST_PROMPT = 300
_STOP_SHARE = 0.1
_NUM_PROMPTS = 8


class Pair(Protocol):
    """A target and drafters, with requests for them."""

    models: Models
    heads: Sequence[str]
    """Arguments that give a verifier heads; empty if there are none."""

    def draw(self, rng: random.Random, longest: int) -> ChaosRequest:
        """Draw a request for at most ``longest`` tokens."""
        ...

    async def truth(self, client: AsyncClient, longest: int) -> Truth:
        """Return the right answers. It is called before the first fault, because it may query the
        mesh."""
        ...


class WaitingPair:
    """Simulated models, which wait instead of computing. ``seed`` (uint64) determines their
    texts."""

    def __init__(self, seed: int) -> None:
        self._target = SimulatedTarget(seed)
        self.models: Models = WaitingModels(
            target_ms=_TARGET_MS, drafter_ms=_DRAFTER_MS, acceptance=_ACCEPTANCE, seed=seed
        )
        self.heads: Sequence[str] = (
            *("--simulated-heads-depth", str(_HEADS_DEPTH)),
            *("--simulated-heads-ms", f"{_HEADS_MS:g}"),
        )

    def draw(self, rng: random.Random, longest: int) -> ChaosRequest:
        """Draw a request with a random prompt, one in ten with a stop token."""
        vocab_size = self._target.vocab_size
        num_prompt = magnitude(rng, 1, _LONGEST_PROMPT)
        stops = (rng.randrange(vocab_size),) if rng.random() < _STOP_SHARE else ()
        return draw(
            rng,
            prompt=tuple(rng.randrange(vocab_size) for _ in range(num_prompt)),
            temperature=rng.choice((0.0, 0.8, DRAWING_TEMPERATURE)),
            seed=rng.getrandbits(SEED_BITS),
            longest=longest,
            with_heads=True,
            stop_token_ids=stops,
        )

    async def truth(
        self,
        client: AsyncClient,  # noqa: ARG002
        longest: int,  # noqa: ARG002
    ) -> Truth:
        """Return the right answers, computed without the mesh."""
        return SimulatedTruth(self._target)


class ShippedPair:
    """The shipped models, which continue the first few of the shipped prompts."""

    def __init__(self) -> None:
        self._truth: Truth | None = None
        self.models: Models = RealModels(str(path(TARGET)), (str(path(DRAFTER)),))
        folder = heads()
        self.heads: Sequence[str] = () if folder is None else ("--heads", str(folder))
        self._text_keys: Sequence[TextKey] = [
            (prompt, temperature, 1)
            for prompt in read_prompts(None)[:_NUM_PROMPTS]
            for temperature in (0.0, 0.8)
        ]

    def draw(self, rng: random.Random, longest: int) -> ChaosRequest:
        """Draw a request for one of the prompts, at temperature 0 or 0.8."""
        prompt, temperature, seed = rng.choice(self._text_keys)
        return draw(
            rng,
            prompt=prompt,
            temperature=temperature,
            seed=seed,
            longest=longest,
            with_heads=bool(self.heads),
        )

    async def truth(self, client: AsyncClient, longest: int) -> Truth:
        """Return what the mesh answers with the target alone; it is queried once."""
        if self._truth is None:
            # Twice the longest answer, to see whether a wrong answer continues with later tokens.
            said = await asyncio.gather(
                *(_said(client, key, 2 * longest) for key in self._text_keys)
            )
            self._truth = RecordedTruth(dict(zip(self._text_keys, said, strict=True)))
        return self._truth


async def _said(client: AsyncClient, key: TextKey, num_tokens: int) -> Sequence[int]:
    """Return the text of the target alone."""
    prompt, temperature, seed = key
    stream = client.generate(
        prompt,
        strategy="autoregressive",
        temperature=temperature,
        seed=seed,
        max_tokens=num_tokens,
        ignore_end_of_text=True,
    )
    await stream
    return stream.result.token_ids
