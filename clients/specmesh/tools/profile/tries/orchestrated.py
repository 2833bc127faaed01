"""The rounds per second of ways of decoding through the orchestrator, known best for those that
were tried."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import cycle, islice

from specmesh.client import AsyncClient
from specmesh.simulation.costs import MeshCosts
from specmesh.tools.profile.measure.stillness import Pace, on_still_cores
from specmesh.tools.profile.measure.watch import CoreWatch
from specmesh.tools.profile.predict import tokens_per_s
from specmesh.tools.profile.rounds import ObservedRounds, ProfiledAcceptance, Way
from specmesh.tools.profile.tries.mesh_tries import Load, attempt, num_answers, warm_up
from specmesh.tools.profile.tries.polish import polished

Case = tuple[Way, float, int]
"""A way, a temperature, and the number of streams: one or ``MANY``."""


class Observations:
    """The tries of ways of decoding, in one pass after the other."""

    def __init__(
        self,
        client: AsyncClient,
        cores: CoreWatch,
        prompts: Sequence[str],
        num_tokens: int,
        seed: int,
    ) -> None:
        self._client = client
        self._cores = cores
        self._prompts = cycle(prompts)
        self._num_tokens = num_tokens
        self._seed = seed
        self._num_passes = 0
        self._paces: defaultdict[Case, dict[int, Pace]] = defaultdict(dict)
        """Paces by case, then by pass."""

    async def observe(self, cases: Collection[Case], seconds: float) -> None:
        """Try each of ``cases`` at least once, repeatedly for about ``seconds``. Cases take turns,
        so that other load on the machine affects all equally, and each pass has other prompts.
        Raises SpecmeshError."""
        until = time.monotonic() + seconds
        while True:
            loads = {
                streams: self._load(streams)
                for streams in sorted({streams for _, _, streams in cases})
            }
            for load in loads.values():
                await warm_up(self._client, self._cores, load, [way for way, *_ in cases])
            for way, temperature, streams in cases:
                load = loads[streams].at(temperature)
                tried = await attempt(self._client, self._cores, load, way)
                self._paces[way, temperature, streams][self._num_passes] = tried.pace
            self._num_passes += 1
            if time.monotonic() >= until:
                return

    def _load(self, streams: int) -> Load:
        """Return a load of the next prompts."""
        prompts = list(islice(self._prompts, num_answers(streams)))
        return Load(prompts, streams, 0.0, self._num_tokens, self._seed)

    def observed(self) -> tuple[ObservedRounds, ...]:
        """Return the observed rounds per second, from all tries so far."""
        of_load: defaultdict[tuple[float, int], dict[Way, dict[int, float]]] = defaultdict(dict)
        for (way, temperature, streams), speeds in on_still_cores(self._paces).items():
            of_load[temperature, streams][way] = speeds
        return tuple(
            ObservedRounds(way, temperature, streams, speed, len(speeds[way]))
            for (temperature, streams), speeds in of_load.items()
            for way, speed in polished(speeds).items()
        )


def promising(
    acceptances: Iterable[ProfiledAcceptance], costs: MeshCosts, context: float
) -> list[ProfiledAcceptance]:
    """Return the most promising way of each strategy at each temperature, with one stream and
    ignoring the orchestrator: a fit is best near what it was fitted to."""
    alike: defaultdict[tuple[str, float], list[ProfiledAcceptance]] = defaultdict(list)
    for each in acceptances:
        alike[each.way.strategy, each.temperature].append(each)
    return [
        max(own, key=lambda each: tokens_per_s(each, costs, 1, context)) for own in alike.values()
    ]
