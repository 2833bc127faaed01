"""Ways of decoding, tried through the orchestrator: some to fit to, then those that lead, over and
over, so that the more a way promises, the better it is known."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product

from specmesh.client import AsyncClient
from specmesh.tools.profile.accepting import Acceptances
from specmesh.tools.profile.choose import expectations
from specmesh.tools.profile.costs import AUTOREGRESSIVE_ROUND, MANY, MeshCosts, Way
from specmesh.tools.profile.measure.watch import CoreWatch
from specmesh.tools.profile.predict import CONTEXT, orchestrating
from specmesh.tools.profile.tries.orchestrated import Case, Observations, promising

LEADERS = 4
"""Ways that are looked at more closely, of each temperature and number of streams."""


class Tries:
    """Tries of ways that ``accepted`` knows."""

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
        self, costs: MeshCosts, temperatures: Sequence[float], seconds: float
    ) -> MeshCosts:
        """``costs`` with what rounds take on top, by strategy. Raises SpecmeshError."""
        self._say("some ways of decoding, through the orchestrator")
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
        self, costs: MeshCosts, temperatures: Sequence[float], seconds: float
    ) -> MeshCosts:
        """``costs`` with more observations of the ways that lead, which draft along more answers,
        too; who leads may change meanwhile. Raises SpecmeshError, StartError."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            leading = list(self._leading(costs, temperatures))
            self._say(f"the {len({way for way, *_ in leading})} ways that lead, more closely")
            if not self._accepted.exhausted:
                await self._accepted.measure(_by_temperature(leading))
            await self._observations.observe(leading, 0.0)
            costs = replace(costs, observed=self._observations.observed())
        return costs

    def _leading(self, costs: MeshCosts, temperatures: Sequence[float]) -> Iterable[Case]:
        means = self._accepted.means()
        for temperature, streams in product(temperatures, (1, MANY)):
            expected = expectations(
                means, costs, streams=streams, temperature=temperature, context=CONTEXT
            )
            for each in expected[:LEADERS]:
                yield each.acceptance.way, temperature, streams


def _by_temperature(cases: Iterable[Case]) -> dict[float, list[Way]]:
    """The ways among ``cases``, each once."""
    found: defaultdict[float, dict[Way, None]] = defaultdict(dict)
    for way, temperature, _ in cases:
        found[temperature][way] = None
    return {temperature: list(ways) for temperature, ways in found.items()}
