"""Meshes whose simulated models differ in their vocabulary alone, in turns: what speculation gains,
and the processor time of their verifiers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.models import WaitingModels
from specmesh.client import AsyncClient
from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.tools.kit.experiment import (
    AUTOREGRESSIVE,
    SAMPLED,
    SPECULATIVE,
    Experiment,
    Speculation,
)
from specmesh.tools.kit.processor_time import processor_s

TARGET_MS, DRAFTER_MS = 5.0, 0.5
LOOKAHEAD = 8
PLAIN = Speculation(AUTOREGRESSIVE)
SPECULATION = Speculation(SPECULATIVE, StrategyOptions(lookahead=LOOKAHEAD))
_PROMPT_TOKENS = 16


@dataclass(frozen=True, slots=True)
class ServedMesh:
    """A running mesh whose models have ``entries`` tokens; ``pids`` are those of its processes, by
    name."""

    entries: int
    client: AsyncClient
    pids: Mapping[str, int]

    def verifier_s(self) -> float:
        """Return the seconds of a core that the verifier has used so far."""
        return processor_s(self.pids["verifier-0"])


@asynccontextmanager
async def serving(
    entries: int, directory: Path, report: Callable[[str], None]
) -> AsyncIterator[ServedMesh]:
    """Start a mesh whose logs go to ``directory``. Raises StartError.

    The drafter guesses every token, so that meshes with other vocabularies make the same
    verifications, and a token is chosen from every row of logits.
    """
    models = WaitingModels(
        target_ms=TARGET_MS, drafter_ms=DRAFTER_MS, acceptance=1.0, vocab_size=entries
    )
    options = MeshOptions(models=models, drain_s=1.0)
    async with LocalMesh(options, directory, report) as mesh, AsyncClient(mesh.address) as client:
        yield ServedMesh(entries, client, mesh.pids)


@dataclass(frozen=True, slots=True)
class MeshTurn:
    """Concurrent answers: their tokens per second, and the verifier's processor time per token."""

    tokens_per_s: float
    verifier_ms: float
    texts: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class MeshRound:
    """A turn of the target alone and one of speculative decoding."""

    plain: MeshTurn
    speculative: MeshTurn

    @property
    def speedup(self) -> float:
        """Return what speculation gains."""
        return self.speculative.tokens_per_s / self.plain.tokens_per_s


@dataclass(frozen=True, slots=True)
class MeshFigures:
    """The medians over the rounds of one mesh.

    ``verifier_ms`` is the verifier's processor time per token, with speculation.
    """

    entries: int
    plain_tokens_per_s: float
    tokens_per_s: float
    speedup: float
    plain_verifier_ms: float
    verifier_ms: float


@dataclass(frozen=True, slots=True)
class MeshComparison:
    """The figures with a number of concurrent streams, smallest vocabulary first. The ratios are
    the medians, over the rounds, of the largest vocabulary's figure over the smallest's."""

    streams: int
    meshes: Sequence[MeshFigures]
    speedup_ratio: float
    plain_verifier_ms_ratio: float
    verifier_ms_ratio: float
    identical: bool
    """True if speculative decoding gave the target's own text."""


async def compare(
    meshes: Sequence[ServedMesh], num_streams: int, num_tokens: int, num_rounds: int
) -> MeshComparison:
    """Let ``meshes``, the smallest vocabulary first, answer in turns. Raises SpecmeshError."""
    rounds: dict[int, list[MeshRound]] = {mesh.entries: [] for mesh in meshes}
    for number in range(num_rounds + 1):
        for mesh in meshes if number % 2 else meshes[::-1]:
            found = await _round(mesh, num_streams, num_tokens)
            if number:  # The first round opens connections and learns latencies.
                rounds[mesh.entries].append(found)
    return summarise(num_streams, rounds)


async def _round(mesh: ServedMesh, num_streams: int, num_tokens: int) -> MeshRound:
    turns = [await _turn(mesh, each, num_streams, num_tokens) for each in (PLAIN, SPECULATION)]
    return MeshRound(*turns)


async def _turn(
    mesh: ServedMesh, speculation: Speculation, num_streams: int, num_tokens: int
) -> MeshTurn:
    prompts = [range(number, number + _PROMPT_TOKENS) for number in range(num_streams)]
    experiment = Experiment(prompts=prompts, speculations=[speculation], num_tokens=num_tokens)
    used_s, began = mesh.verifier_s(), time.perf_counter()
    streams = [experiment.ask(mesh.client, each, speculation, SAMPLED) for each in prompts]
    results = await asyncio.gather(*streams)
    seconds, used_s = time.perf_counter() - began, mesh.verifier_s() - used_s
    tokens = num_streams * num_tokens
    return MeshTurn(tokens / seconds, used_s * 1e3 / tokens, [each.token_ids for each in results])


def summarise(num_streams: int, rounds: Mapping[int, Sequence[MeshRound]]) -> MeshComparison:
    """Summarise ``rounds`` by the size of the vocabulary, the smallest first."""
    small, *_, large = rounds.values()
    return MeshComparison(
        streams=num_streams,
        meshes=[_figures(entries, found) for entries, found in rounds.items()],
        speedup_ratio=_ratio(small, large, lambda each: each.speedup),
        plain_verifier_ms_ratio=_ratio(small, large, lambda each: each.plain.verifier_ms),
        verifier_ms_ratio=_ratio(small, large, lambda each: each.speculative.verifier_ms),
        identical=all(
            each.plain.texts == each.speculative.texts
            for found in rounds.values()
            for each in found
        ),
    )


def _figures(entries: int, rounds: Sequence[MeshRound]) -> MeshFigures:
    return MeshFigures(
        entries=entries,
        plain_tokens_per_s=median(each.plain.tokens_per_s for each in rounds),
        tokens_per_s=median(each.speculative.tokens_per_s for each in rounds),
        speedup=median(each.speedup for each in rounds),
        plain_verifier_ms=median(each.plain.verifier_ms for each in rounds),
        verifier_ms=median(each.speculative.verifier_ms for each in rounds),
    )


def _ratio(
    small: Sequence[MeshRound], large: Sequence[MeshRound], figure: Callable[[MeshRound], float]
) -> float:
    return median(figure(b) / figure(a) for a, b in zip(small, large, strict=True))
