"""The runs that are compared."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from specmesh.client import Client, GenerationResult, GenerationStream

AUTOREGRESSIVE = "autoregressive"
SPECULATIVE = "speculative"
STRATEGIES = (AUTOREGRESSIVE, SPECULATIVE)
TEMPERATURES = (0.0, 0.8)

_SEED = 20_240_817
_NUM_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Run:
    """One prompt, answered once."""

    prompt: int
    strategy: str
    temperature: float
    result: GenerationResult
    seconds: float
    """From the call to the end of the stream, as the client sees it."""

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens over the whole time, the prompt's included."""
        return len(self.result.token_ids) / self.seconds


def ask(
    client: Client, prompt: str, strategy: str, temperature: float, num_tokens: int
) -> GenerationStream:
    """An answer of exactly ``num_tokens``, reproducible, sampled in the coupled mode."""
    return client.generate(
        prompt,
        strategy=strategy,
        temperature=temperature,
        seed=_SEED,
        acceptance_mode="coupled",
        max_tokens=num_tokens,
        ignore_end_of_text=True,
    )


async def measure(client: Client, prompts: Sequence[str], num_tokens: int) -> AsyncIterator[Run]:
    """Every prompt at every temperature with every strategy.

    The strategies take turns, and in going first too, so that whatever else the machine
    does hits both alike. Replicas have seen each prompt before it is timed, so that nobody
    pays for the other's prefill.
    """
    for prompt in prompts:
        for strategy in STRATEGIES:
            await ask(client, prompt, strategy, 0.0, _NUM_WARM_UP_TOKENS).text()
    for temperature in TEMPERATURES:
        for number, prompt in enumerate(prompts):
            for strategy in STRATEGIES if number % 2 == 0 else STRATEGIES[::-1]:
                began = time.perf_counter()
                stream = ask(client, prompt, strategy, temperature, num_tokens)
                await stream.text()
                seconds = time.perf_counter() - began
                yield Run(number, strategy, temperature, stream.result, seconds)
