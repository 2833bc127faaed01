"""Which models are served, what they are asked, and what they must say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Protocol

from specmesh.bench.chaos.asks import Ask, draw, magnitude
from specmesh.bench.chaos.truth import (
    DRAWING_TEMPERATURE,
    AskedTruth,
    Question,
    SimulatedTruth,
    Truth,
)
from specmesh.bench.kit.prompts import read_prompts
from specmesh.cli.local.models import Models, RealModels, WaitingModels
from specmesh.client import Client
from specmesh.decoding.simulated import SimulatedTarget
from specmesh.models import DRAFTER, TARGET, path

_TARGET_MS = 8.0
_DRAFTER_MS = 2.0
_ACCEPTANCE = 0.8
_LONGEST_PROMPT = 300
_STOP_SHARE = 0.1
_NUM_PROMPTS = 8


class Pair(Protocol):
    """A target and drafters."""

    models: Models

    def draw(self, rng: random.Random, longest: int) -> Ask:
        """A request for at most ``longest`` tokens."""
        ...

    async def truth(self, client: Client, longest: int) -> Truth:
        """What is true; a mesh that needs to be asked is at peace still."""
        ...


class WaitingPair:
    """Models that wait instead of computing. ``seed`` (uint64) says what they say."""

    def __init__(self, seed: int) -> None:
        self._target = SimulatedTarget(seed)
        self.models: Models = WaitingModels(
            target_ms=_TARGET_MS, drafter_ms=_DRAFTER_MS, acceptance=_ACCEPTANCE, seed=seed
        )

    def draw(self, rng: random.Random, longest: int) -> Ask:
        """See ``Pair``."""
        vocab_size = self._target.vocab_size
        num_prompt = magnitude(rng, 1, _LONGEST_PROMPT)
        stops = (rng.randrange(vocab_size),) if rng.random() < _STOP_SHARE else ()
        return draw(
            rng,
            prompt=tuple(rng.randrange(vocab_size) for _ in range(num_prompt)),
            temperature=rng.choice((0.0, 0.8, DRAWING_TEMPERATURE)),
            seed=rng.getrandbits(64),
            longest=longest,
            stop_token_ids=stops,
        )

    async def truth(
        self,
        client: Client,  # noqa: ARG002
        longest: int,  # noqa: ARG002
    ) -> Truth:
        """See ``Pair``."""
        return SimulatedTruth(self._target)


class ShippedPair:
    """The shipped models, asked to carry on the first of the shipped prompts."""

    def __init__(self) -> None:
        self._truth: Truth | None = None
        self.models: Models = RealModels(str(path(TARGET)), (str(path(DRAFTER)),))
        self._questions: Sequence[Question] = [
            (prompt, temperature, 1)
            for prompt in read_prompts(None)[:_NUM_PROMPTS]
            for temperature in (0.0, 0.8)
        ]

    def draw(self, rng: random.Random, longest: int) -> Ask:
        """See ``Pair``."""
        prompt, temperature, seed = rng.choice(self._questions)
        return draw(rng, prompt=prompt, temperature=temperature, seed=seed, longest=longest)

    async def truth(self, client: Client, longest: int) -> Truth:
        """See ``Pair``. The mesh is asked once."""
        if self._truth is None:
            # Longer than needed, so that it can be told where a wrong answer comes from.
            said = await asyncio.gather(
                *(_said(client, question, 2 * longest) for question in self._questions)
            )
            self._truth = AskedTruth(dict(zip(self._questions, said, strict=True)))
        return self._truth


async def _said(client: Client, question: Question, num_tokens: int) -> Sequence[int]:
    """What the target alone says."""
    prompt, temperature, seed = question
    stream = client.generate(
        prompt,
        strategy="autoregressive",
        temperature=temperature,
        seed=seed,
        max_tokens=num_tokens,
        ignore_end_of_text=True,
    )
    await stream.text()
    return stream.result.token_ids
