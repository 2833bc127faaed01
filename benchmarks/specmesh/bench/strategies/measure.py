"""The runs that are compared."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from specmesh.client import Client, GenerationResult, GenerationStream

AUTOREGRESSIVE = "autoregressive"
SPECULATIVE = "speculative"
DSI = "dsi"
BRANCH_PREDICTION = "branch-prediction"
EXHAUSTIVE = "exhaustive"
STRATEGIES = (AUTOREGRESSIVE, SPECULATIVE, DSI, BRANCH_PREDICTION, EXHAUSTIVE)
GREEDY = 0.0
SAMPLED = 0.8
TEMPERATURES = (GREEDY, SAMPLED)
SEED = 20_240_817

_NUM_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Speculation:
    """A strategy and what it is told; None and "" leave it to the strategy."""

    strategy: str
    lookahead: int | None = None
    num_branches: int | None = None
    predictor: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One prompt, answered once."""

    prompt: int
    strategy: str
    temperature: float
    result: GenerationResult
    seconds: float
    """From the call to the end of the stream, as the client sees it."""
    lookahead: int | None = None

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens over the whole time, the prompt's included."""
        return len(self.result.token_ids) / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Every prompt at every temperature with every speculation, each of them once in the list."""

    prompts: Sequence[str]
    speculations: Sequence[Speculation]
    temperatures: Sequence[float] = TEMPERATURES
    num_tokens: int
    seed: int = SEED

    @property
    def num_runs(self) -> int:
        """How many runs ``measure`` makes."""
        return len(self.prompts) * len(self.speculations) * len(self.temperatures)

    def ask(
        self,
        client: Client,
        prompt: str,
        speculation: Speculation,
        temperature: float = GREEDY,
        num_tokens: int | None = None,
    ) -> GenerationStream:
        """An answer of a given length, reproducible, sampled in the coupled mode."""
        return client.generate(
            prompt,
            strategy=speculation.strategy,
            lookahead=speculation.lookahead,
            num_branches=speculation.num_branches,
            predictor=speculation.predictor,
            temperature=temperature,
            seed=self.seed,
            acceptance_mode="coupled",
            max_tokens=num_tokens or self.num_tokens,
            ignore_end_of_text=True,
        )

    async def measure(self, client: Client) -> AsyncIterator[Run]:
        """Make the runs.

        The strategies take turns, and in going first too, so that whatever else the machine
        does hits all alike. Replicas have seen each prompt before it is timed, so that nobody
        pays for another's prefill.
        """
        for prompt in self.prompts:
            for each in self.speculations:
                await self.ask(client, prompt, each, num_tokens=_NUM_WARM_UP_TOKENS).text()
        for temperature in self.temperatures:
            for number, prompt in enumerate(self.prompts):
                first = number % len(self.speculations)
                for each in (*self.speculations[first:], *self.speculations[:first]):
                    began = time.perf_counter()
                    stream = self.ask(client, prompt, each, temperature)
                    await stream.text()
                    seconds = time.perf_counter() - began
                    result = stream.result
                    yield Run(number, each.strategy, temperature, result, seconds, each.lookahead)
