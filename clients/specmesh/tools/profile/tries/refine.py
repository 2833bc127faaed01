"""Tries of ways of decoding through the orchestrator: some to fit to, then the leading ones
repeatedly, so that the best candidates are known best."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product

from specmesh.client import AsyncClient
from specmesh.simulation.costs import MANY
from specmesh.tools.profile.accepting import Acceptances
from specmesh.tools.profile.choose import expectations
from specmesh.tools.profile.measure.watch import CoreWatch
from specmesh.tools.profile.predict import CONTEXT, orchestrating
from specmesh.tools.profile.rounds import AUTOREGRESSIVE_ROUND, ProfiledCosts, Way
from specmesh.tools.profile.tries.orchestrated import Case, Observations, promising

LEADERS = 4
"""Number of leading ways that are tried again, for each temperature and number of streams."""


class Tries:
    """The tries of ways that ``accepted`` knows."""

    def __init__(
        self,
        client: AsyncClient,
        cores: CoreWatch,
        accepted: Acceptances,
        prompts: Sequence[str],
        num_tokens: int,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self._accepted = accepted
        self._observations = Observations(client, cores, prompts, num_tokens, seed)
        self._say = say

    async def fit(
        self, costs: ProfiledCosts, temperatures: Sequence[float], seconds: float
    ) -> ProfiledCosts:
        """Return ``costs`` with the orchestrator's time per round of each strategy. Raises
        SpecmeshError."""
        self._say("trying some ways of decoding through the orchestrator")
        alone = [replace(AUTOREGRESSIVE_ROUND, temperature=each) for each in temperatures]
        tried = [*alone, *promising(self._accepted.means(), costs, CONTEXT)]
        of_case = {
            (each.way, each.temperature, streams): each
            for each, streams in product(tried, (1, MANY))
        }
        await self._observations.observe(of_case, seconds)
        observed = self._observations.observed()
        pairs = [(of_case[each.way, each.temperature, each.streams], each) for each in observed]
        return replace(costs, orchestrating=orchestrating(costs, pairs, CONTEXT), observed=observed)

    async def refine(
        self, costs: ProfiledCosts, temperatures: Sequence[float], seconds: float
    ) -> ProfiledCosts:
        """Return ``costs`` with more observations of the leading ways, which also draft along more
        answers. The leading ways may change meanwhile. Raises SpecmeshError, StartError."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            leading = list(self._leading(costs, temperatures))
            self._say(f"the {len({way for way, *_ in leading})} leading ways, tried again")
            if not self._accepted.exhausted:
                await self._accepted.measure(_by_temperature(leading))
            await self._observations.observe(leading, 0.0)
            costs = replace(costs, observed=self._observations.observed())
        return costs

    def _leading(self, costs: ProfiledCosts, temperatures: Sequence[float]) -> Iterable[Case]:
        means = self._accepted.means()
        for temperature, streams in product(temperatures, (1, MANY)):
            expected = expectations(
                means, costs, streams=streams, temperature=temperature, context=CONTEXT
            )
            for each in expected[:LEADERS]:
                yield each.acceptance.way, temperature, streams


def _by_temperature(cases: Iterable[Case]) -> dict[float, list[Way]]:
    """Return the distinct ways among ``cases``, by temperature."""
    found: defaultdict[float, dict[Way, None]] = defaultdict(dict)
    for way, temperature, _ in cases:
        found[temperature][way] = None
    return {temperature: list(ways) for temperature, ways in found.items()}
