"""The same prompts with one threshold after the other, and with the target alone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from specmesh.client import Client, Filter, GenerationResult, GenerationStream

FILTER = "filter"
AUTOREGRESSIVE = "autoregressive"

_NUM_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Setting:
    """What is kept: tokens that ``scorer`` puts above ``threshold``."""

    scorer: str
    threshold: float


@dataclass(frozen=True, slots=True)
class Run:
    """One prompt, answered once; without a ``setting``, by the target alone."""

    prompt: int
    setting: Setting | None
    result: GenerationResult
    seconds: float


def ask(client: Client, prompt: str, setting: Setting | None, num_tokens: int) -> GenerationStream:
    """An answer of that length at temperature 0."""
    return client.generate(
        prompt,
        strategy=FILTER if setting else AUTOREGRESSIVE,
        filter=Filter(setting.scorer, setting.threshold) if setting else None,
        temperature=0.0,
        max_tokens=num_tokens,
        ignore_end_of_text=True,
    )


@dataclass(frozen=True, slots=True)
class Sweep:
    """Every prompt with every setting and with the target alone."""

    prompts: Sequence[str]
    num_tokens: int
    settings: Sequence[Setting]

    @property
    def num_runs(self) -> int:
        """How many runs ``measure`` makes."""
        return len(self.prompts) * (len(self.settings) + 1)

    async def measure(self, client: Client) -> AsyncIterator[Run]:
        """Make the runs. All take turns, in going first too; replicas know the prompts before."""
        turns = (None, *self.settings)
        for prompt in self.prompts:
            for each in (None, self.settings[0]):
                await ask(client, prompt, each, _NUM_WARM_UP_TOKENS).text()
        for number, prompt in enumerate(self.prompts):
            first = number % len(turns)
            for setting in (*turns[first:], *turns[:first]):
                began = time.perf_counter()
                stream = ask(client, prompt, setting, self.num_tokens)
                await stream.text()
                yield Run(number, setting, stream.result, time.perf_counter() - began)
