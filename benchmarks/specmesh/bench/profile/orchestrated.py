"""How many rounds a second ways of decoding make through the orchestrator: some, to fit to."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from statistics import median

from specmesh.bench.profile.costs import MANY, Acceptance, MeshCosts
from specmesh.bench.profile.predict import Observed, tokens_per_s
from specmesh.bench.profile.tries import Load, attempt, warm_up
from specmesh.client import AsyncClient


async def observe(
    client: AsyncClient,
    acceptances: Sequence[Acceptance],
    prompts: Sequence[str],
    num_tokens: int,
    seconds: float,
    seed: int,
) -> list[Observed]:
    """Try each of ``acceptances`` with one stream and with many, over and over for about
    ``seconds``. Raises SpecmeshError."""
    loads = [
        Load(list(islice(cycle(prompts), streams)), streams, 0.0, num_tokens, seed)
        for streams in (1, MANY)
    ]
    ways = [each.way for each in acceptances]
    await warm_up(client, loads[-1], ways)
    rates: defaultdict[tuple[Acceptance, int], list[float]] = defaultdict(list)
    until = time.monotonic() + seconds
    while not rates or time.monotonic() < until:
        for each in acceptances:
            for load in loads:
                tried = await attempt(client, load.at(each.temperature), each.way)
                rates[each, load.streams].append(tried.rounds_per_s)
    return [
        Observed(acceptance, streams, median(found))
        for (acceptance, streams), found in rates.items()
    ]


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
