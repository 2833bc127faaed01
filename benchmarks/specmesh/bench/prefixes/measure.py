"""The runs: the two sides take turns, with chats that are new to both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from specmesh.bench.prefixes.chats import ChatLoad, ChatTurn, chats
from specmesh.bench.prefixes.mesh import SIDES, PrefixMesh
from specmesh.client import AsyncClient
from specmesh.load.results.histograms import percentile_of

_COMPUTED = "specmesh_tokens_computed_total"
_SEARCHES = "specmesh_prefix_searches_total"
_OUTCOME = "specmesh_prefix_outcome"


@dataclass(frozen=True, slots=True)
class FirstTokenLatency:
    """The percentiles of the time to first token, in ms."""

    p50: float
    p95: float

    @classmethod
    def of(cls, turns: Sequence[ChatTurn]) -> FirstTokenLatency:
        """Return the percentiles of ``turns``, at least one."""
        times_ms = [turn.ttft_s * 1e3 for turn in turns]
        return cls(*(round(percentile_of(times_ms, percent), 2) for percent in (50, 95)))


@dataclass(slots=True)
class Side:
    """The totals of one side, over all its runs."""

    turns: list[ChatTurn] = field(default_factory=list)
    computed_tokens: int = 0
    """Tokens computed by the verifiers: prefills, and the nodes of trees."""
    searches: Counter[str] = field(default_factory=Counter)
    """Searches of its orchestrators in the directory, by outcome."""

    @property
    def later(self) -> list[ChatTurn]:
        """Return all turns except the first of each chat, which no replica can have cached."""
        return [turn for turn in self.turns if turn.number]

    @property
    def hit_rate(self) -> float:
        """Return the share of the prompts' tokens that the replica of the first forward had cached,
        in later turns."""
        later = self.later
        cached = sum(turn.cached_tokens for turn in later)
        return cached / sum(turn.prompt_tokens for turn in later)

    @property
    def computed_per_answer(self) -> float:
        """Return the tokens that the verifiers computed per answer."""
        return self.computed_tokens / len(self.turns)


async def measure(
    mesh: PrefixMesh,
    load: ChatLoad,
    rounds: int,
    chats_a_round: int,
    progress: Callable[[int], None],
) -> dict[str, Side]:
    """Let both sides hold ``chats_a_round`` chats in each round. Raises SpecmeshError, and
    aiohttp.ClientError if a process can't be scraped."""
    sides = {side: Side() for side in SIDES}
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        clients = {
            side: [
                await stack.enter_async_context(AsyncClient(address))
                for address in mesh.orchestrators[side]
            ]
            for side in SIDES
        }
        first = 0
        for number in range(rounds):
            # Each side goes first in every other round.
            for side in SIDES if number % 2 else SIDES[::-1]:
                found, asked = sides[side], range(first, first + chats_a_round)
                before = await _computed(session, mesh)
                found.turns += await chats(clients[side], load, asked)
                found.computed_tokens += await _computed(session, mesh) - before
                first += chats_a_round
            progress(number)
        for side, found in sides.items():
            for address in mesh.orchestrator_metrics[side]:
                found.searches += await _counted(session, address, _SEARCHES, _OUTCOME)
    return sides


async def _computed(session: aiohttp.ClientSession, mesh: PrefixMesh) -> int:
    counted = [
        await _counted(session, address, _COMPUTED, "role") for address in mesh.verifier_metrics
    ]
    return sum(each.total() for each in counted)


async def _counted(
    session: aiohttp.ClientSession, address: str, name: str, label: str
) -> Counter[str]:
    """Return a counter of one process, by a label."""
    async with session.get(f"http://{address}/metrics") as response:
        response.raise_for_status()
        text = await response.text()
    counted = Counter[str]()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name:
                counted[sample.labels.get(label, "")] += int(sample.value)
    return counted
