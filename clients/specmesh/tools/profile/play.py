"""The simulation of rounds of several streams, which has no closed form: mean rounds go through the
servers of one machine on the virtual clock, and an orchestrator serves one stream at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Final

from specmesh.orchestrator.strategies.events import Capacity
from specmesh.orchestrator.strategies.kit.further import MOST, num_further
from specmesh.simulation.clock import Clock
from specmesh.simulation.costs import MeshCosts
from specmesh.simulation.law import ForwardShape, Law
from specmesh.simulation.mesh import MeshModel, SimulatedMesh
from specmesh.simulation.servers import SimulatedJob, SimulatedServer, Step
from specmesh.simulation.sharing import DRAFTER, ORCHESTRATOR, TARGET, SharedMachine
from specmesh.tools.profile.rounds import Drafting, ProfiledAcceptance

_ROUNDS: Final = 40
"""Counted rounds of each stream."""
_WARM_UP: Final = 8
"""Uncounted rounds of each stream, until streams have spread."""
_JITTER: Final = 0.1
"""Relative variation of forwards, without which streams would stay in step forever."""

_Wait = float | tuple[str, Iterator[Step]]
"""A wait of a stream: seconds in transit, or steps of a role's server."""


def rounds_per_s(
    acceptance: ProfiledAcceptance,
    costs: MeshCosts,
    streams: int,
    context: float,
    orchestrator_ms: float,
) -> float:
    """Return the total rounds per second of ``streams`` answers at a mean ``context`` in tokens, if
    an orchestrator takes ``orchestrator_ms`` per round."""
    play = _Play(acceptance, costs, streams, context, orchestrator_ms)
    began_s = play.until(_WARM_UP * streams)
    return _ROUNDS * streams / (play.until((_WARM_UP + _ROUNDS) * streams) - began_s)


class _Play:
    def __init__(
        self,
        acceptance: ProfiledAcceptance,
        costs: MeshCosts,
        streams: int,
        context: float,
        orchestrator_ms: float,
    ) -> None:
        self._acceptance = acceptance
        self._costs = costs
        self._context = context
        self._num_rounds = 0
        self._clock = Clock()
        # Replicas batch everything that waits when a forward begins.
        model = MeshModel(costs, batch=streams, jitter=_JITTER)
        mesh = SimulatedMesh(self._clock, model, seed=0)
        self._dice = mesh.rng.random
        law = Law.fixed(orchestrator_ms + acceptance.strategy_ms)
        self._servers = {
            ORCHESTRATOR: SimulatedServer(self._clock, law, self._dice, jitter=_JITTER),
            TARGET: mesh.verifiers[0],
            **({DRAFTER: mesh.drafters[0]} if mesh.drafters else {}),
        }
        SharedMachine(costs, self._servers)
        for stream in range(streams):
            self._go_on(stream, self._rounds())

    def until(self, num_rounds: int) -> float:
        """Run until all streams together have made that many rounds; return the time in seconds."""
        self._clock.run(lambda: self._num_rounds >= num_rounds)
        return self._clock.now

    def _rounds(self) -> Iterator[_Wait]:
        """Yield what a stream waits for. A drafter drafts before the verification, heads after
        it."""
        made, costs = self._acceptance, self._costs
        drafting = made.way.drafting if made.levels else Drafting.NOBODY
        hop_s = costs.verify_hop.ms(made.nodes) / 1e3
        if drafting is Drafting.NOBODY:
            hop_s /= self._tokens_per_call()
        while True:
            yield ORCHESTRATOR, iter([Step()])
            if drafting is Drafting.DRAFTER:
                yield costs.draft_hop.ms(made.nodes) / 1e3
                yield DRAFTER, self._draft()
            yield hop_s
            drafted = self._draft(heads=True) if drafting is Drafting.HEADS else ()
            yield TARGET, chain([Step(1 + made.nodes, self._context)], drafted)
            self._num_rounds += 1

    def _tokens_per_call(self) -> int:
        """Return how many tokens the target decodes by itself for one request, whose hop they
        share."""
        forward_s = self._costs.target.ms(ForwardShape(context=self._context)) / 1e3
        capacity = Capacity(target_decoding_s=forward_s)
        return 1 + num_further(capacity, MOST + 1)

    def _draft(self, *, heads: bool = False) -> Iterator[Step]:
        context = 0.0 if heads else self._context
        for number, tokens in enumerate(self._acceptance.levels):
            if self._dice() < tokens:  # On average below one: some rounds don't reach this level.
                yield Step(max(tokens, 1.0), context, starts=number == 0, heads=heads)

    def _go_on(self, stream: int, rounds: Iterator[_Wait]) -> None:
        wait, go_on = next(rounds), partial(self._go_on, stream, rounds)
        if isinstance(wait, float):
            self._clock.after(wait, go_on)
            return
        role, steps = wait

        def work() -> Iterator[Step]:
            yield from steps
            self._clock.after(0.0, go_on)

        self._servers[role].submit(SimulatedJob(stream, work(), lost=go_on))
