"""The runs to compare: the same prompts with several settings that take turns."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

from specmesh.cli.local.models import RealModels
from specmesh.client import AsyncClient, Filter, GenerationResult, GenerationStream
from specmesh.orchestrator.strategies import LOSSLESS, STRATEGIES
from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.tools.kit.progress import progress

AUTOREGRESSIVE = "autoregressive"
SPECULATIVE = "speculative"
DSI = "dsi"
BRANCH_PREDICTION = "branch-prediction"
FILTER = "filter"
TREE = "tree"
HEADS = "heads"
HEADS_AND_DRAFTER = "heads-and-drafter"
GREEDY = 0.0
SAMPLED = 0.8
TEMPERATURES = (GREEDY, SAMPLED)
SEED = 20_240_817

Prompt = str | Sequence[int]
"""A text or token ids."""


def lossless(models: RealModels) -> tuple[str, ...]:
    """Return the lossless strategies that a mesh of ``models`` can run."""
    return tuple(name for name in LOSSLESS if models.heads or not STRATEGIES[name].needs_heads)


_NUM_WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Speculation:
    """A strategy and its options."""

    strategy: str
    options: StrategyOptions = StrategyOptions()  # noqa: RUF009 - it is frozen
    filter: Filter | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One answer to one prompt."""

    prompt: int
    """Number of the prompt, from 0."""
    speculation: Speculation
    temperature: float
    result: GenerationResult
    seconds: float
    """Time from the call to the end of the stream, as the client sees it."""

    @property
    def tokens_per_s(self) -> float:
        """Return the generated tokens over the whole time, prefill included."""
        return len(self.result.token_ids) / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Every prompt at every temperature with every speculation; the speculations are distinct."""

    prompts: Sequence[Prompt]
    speculations: Sequence[Speculation]
    temperatures: Sequence[float] = TEMPERATURES
    num_tokens: int
    seed: int = SEED

    @property
    def num_runs(self) -> int:
        """Return the number of runs that ``measure`` makes."""
        return len(self.prompts) * len(self.speculations) * len(self.temperatures)

    def ask(
        self,
        client: AsyncClient,
        prompt: Prompt,
        speculation: Speculation,
        temperature: float = GREEDY,
        num_tokens: int | None = None,
    ) -> GenerationStream:
        """Start a reproducible answer of a given length, sampled in coupled mode."""
        return client.generate(
            prompt,
            strategy=speculation.strategy,
            filter=speculation.filter,
            temperature=temperature,
            seed=self.seed,
            acceptance_mode="coupled",
            max_tokens=num_tokens or self.num_tokens,
            ignore_end_of_text=True,
            **asdict(speculation.options),
        )

    async def warm_up(self, client: AsyncClient) -> None:
        """Answer each prompt with each strategy, so that no timed run includes the prefill."""
        for prompt in self.prompts:
            for each in {each.strategy: each for each in self.speculations}.values():
                await self.ask(client, prompt, each, num_tokens=_NUM_WARM_UP_TOKENS)

    async def measure(self, client: AsyncClient) -> AsyncIterator[Run]:
        """Make the runs.

        The speculations take turns, also in going first, so that other load on the machine affects
        all of them equally.
        """
        for temperature in self.temperatures:
            for number in range(len(self.prompts)):
                first = number % len(self.speculations)
                for each in (*self.speculations[first:], *self.speculations[:first]):
                    yield await self.timed(client, number, each, temperature)

    async def runs(self, client: AsyncClient, console: Console) -> list[Run]:
        """Warm up, make the runs, and show their progress."""
        runs: list[Run] = []
        with progress("answers", self.num_runs, console) as advance:
            await self.warm_up(client)
            async for run in self.measure(client):
                runs.append(run)
                advance()
        return runs

    async def timed(
        self, client: AsyncClient, number: int, speculation: Speculation, temperature: float
    ) -> Run:
        """Answer prompt ``number`` and time it."""
        began = time.perf_counter()
        stream = self.ask(client, self.prompts[number], speculation, temperature)
        await stream
        seconds = time.perf_counter() - began
        return Run(number, speculation, temperature, stream.result, seconds)


def tokens_per_s(runs: Sequence[Run]) -> float:
    """Return the tokens of all runs over the time of all runs."""
    return sum(len(run.result.token_ids) for run in runs) / sum(run.seconds for run in runs)


def by_prompt(runs: Iterable[Run]) -> dict[int, Run]:
    """Return ``runs`` by the number of their prompt; there must be one for each prompt."""
    return {run.prompt: run for run in runs}


def differing_prompts(runs: Mapping[int, Run], yardstick: Mapping[int, Run]) -> tuple[int, ...]:
    """Return the prompts whose answers differ from ``yardstick`` in any token; both are by
    prompt."""
    return tuple(
        number
        for number, run in runs.items()
        if run.result.token_ids != yardstick[number].result.token_ids
    )
