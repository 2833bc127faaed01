"""How many rounds a second ways of decoding make through the orchestrator, which is known best of
those that were tried."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import cycle, islice

from specmesh.bench.profile.costs import MANY, Acceptance, MeshCosts, Observed, Way
from specmesh.bench.profile.polish import polished
from specmesh.bench.profile.predict import tokens_per_s
from specmesh.bench.profile.tries import Load, attempt, warm_up
from specmesh.client import AsyncClient

TURNS = 2
"""Answers of each stream in one try."""

Case = tuple[Way, float, int]
"""A way, a temperature, and streams: one or ``MANY``."""


class Observations:
    """Tries of ways of decoding, in one pass after the other."""

    def __init__(
        self, client: AsyncClient, prompts: Sequence[str], num_tokens: int, seed: int
    ) -> None:
        self._client = client
        self._loads = {
            streams: Load(list(islice(cycle(prompts), count)), streams, 0.0, num_tokens, seed)
            for streams, count in ((1, TURNS), (MANY, TURNS * MANY))
        }
        self._num_passes = 0
        self._rates: defaultdict[tuple[float, int], defaultdict[Way, dict[int, float]]] = (
            defaultdict(lambda: defaultdict(dict))
        )
        """Rounds a second, by load, way and pass."""

    async def warm_up(self, ways: Collection[Way]) -> None:
        """Have replicas read the prompts. Raises SpecmeshError."""
        await warm_up(self._client, self._loads[MANY], list(ways))

    async def observe(self, cases: Collection[Case], seconds: float) -> None:
        """Try each of ``cases``, at least once, over and over for about ``seconds``, in turns, so
        that a machine that gets busier affects all alike. Raises SpecmeshError."""
        until = time.monotonic() + seconds
        while True:
            for way, temperature, streams in cases:
                load = self._loads[streams].at(temperature)
                tried = await attempt(self._client, load, way)
                self._rates[temperature, streams][way][self._num_passes] = tried.rounds_per_s
            self._num_passes += 1
            if time.monotonic() >= until:
                return

    def observed(self) -> tuple[Observed, ...]:
        """What follows from all tries so far."""
        return tuple(
            Observed(way, temperature, streams, speed)
            for (temperature, streams), speeds in self._rates.items()
            for way, speed in polished(speeds).items()
        )


def promising(
    acceptances: Iterable[Acceptance], costs: MeshCosts, context: float
) -> list[Acceptance]:
    """Of each strategy at each temperature the one of which most is expected, were there no
    orchestrator, with one stream: a fit is best near what it was fitted to."""
    alike: defaultdict[tuple[str, float], list[Acceptance]] = defaultdict(list)
    for each in acceptances:
        alike[each.way.strategy, each.temperature].append(each)
    return [
        max(own, key=lambda each: tokens_per_s(each, costs, 1, context)) for own in alike.values()
    ]
