"""The simulated mesh: its servers, its faults, and the routing of calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from specmesh.decoding.predict.forward_times import time_forwards
from specmesh.orchestrator.replicas.latencies.mesh_latencies import Latencies
from specmesh.orchestrator.replicas.latencies.observations import TimedDraft, TimedVerification
from specmesh.orchestrator.strategies.events import Capacity
from specmesh.simulation.clock import Clock
from specmesh.simulation.costs import Contention, MeshCosts
from specmesh.simulation.law import ForwardShape, Law
from specmesh.simulation.servers import SimulatedJob, SimulatedServer

_ONE, _SEVERAL = ForwardShape(tokens=1), ForwardShape(tokens=8)
"""Size of the forward by which an omniscient orchestrator knows what a token adds."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults to inject. Rates are probabilities; everything is drawn with the mesh's seed."""

    draft_failure: float = 0.0
    """Rate of draft calls that fail at a random level."""
    late_answer: float = 0.0
    """Rate of answers that arrive although their task was cancelled."""
    repeated_answer: float = 0.0
    """Rate of answers that arrive a second time."""
    max_delay_s: float = 0.0
    """Upper bound of a random delay of each answer."""
    outages: Sequence[tuple[float, int, bool]] = ()
    """Triples of seconds, replica of the target, and whether it is live from then on."""


@dataclass(frozen=True, slots=True)
class MeshModel:
    """The servers of a mesh, and their ``costs``, of which contention and shared cores don't count:
    each replica has a machine to itself.

    There are ``drafter_replicas`` servers for each different drafter; ``batch`` is the maximum
    number of calls in a forward, ``heads_depth`` that of the levels that heads draft.
    """

    costs: MeshCosts
    num_verifiers: int = 1
    drafter_replicas: int = 1
    batch: int = 1
    heads_depth: int = 8
    jitter: float = 0.0
    """Maximum relative variation of a forward."""
    faults: Faults = field(default_factory=Faults)
    measures: bool = False
    """True if the orchestrator learns latencies from its calls, as real ones do. Otherwise it knows
    those of calls that share their forward and their server with no other."""


class SimulatedMesh:
    """Replicas of the target, and of each different drafter."""

    def __init__(self, clock: Clock, model: MeshModel, seed: int) -> None:
        self.clock = clock
        self.model = model
        self.rng = random.Random(seed)  # noqa: S311 - a simulation must repeat
        costs = model.costs
        # Calls that share a forward are judged one after the other, on the engine's thread.
        call_ms = costs.target.call_ms + costs.verify_hop.call_ms
        target = replace(costs.target, call_ms=call_ms)
        self.verifiers = [self._server(target, costs.heads) for _ in range(model.num_verifiers)]
        self.drafters = [
            self._server(law) for law in costs.drafters for _ in range(model.drafter_replicas)
        ]
        """The servers of the first drafter, then those of the next."""
        self.on_change: list[Callable[[], None]] = []
        """Called when a replica has left or joined, one for each answer under way."""
        self.latencies = Latencies()
        """The orchestrator's knowledge, which is used only if the model measures."""
        self.latencies.price.can_share = model.batch > 1
        self.latencies.price.start_with(time_forwards(lambda rows: _seconds(target, rows)))
        self._known = _known(model)
        self._stranded: list[SimulatedJob] = []
        for time_s, replica, alive in model.faults.outages:
            clock.after(time_s, lambda r=replica, a=alive: self._set_alive(r, a))  # type: ignore[misc]

    def _server(self, law: Law, heads: Law | None = None) -> SimulatedServer:
        model = self.model
        given = (self.clock, law, self.rng.random, model.batch)
        return SimulatedServer(*given, heads=heads, jitter=model.jitter)

    @property
    def num_live_verifiers(self) -> int:
        """Return the number of live replicas."""
        return sum(server.alive for server in self.verifiers)

    def capacity(self, num_drafters: int) -> Capacity:
        """Return what the orchestrator tells strategies, with ``num_drafters`` different
        drafters."""
        num_verifiers, kinds = self.num_live_verifiers, range(num_drafters)
        if not self.model.measures:
            return replace(self._known, num_verifiers=num_verifiers, drafters=tuple(kinds))
        names, num_answers = [str(kind) for kind in kinds], len(self.on_change)
        return self.latencies.capacity(
            *(num_verifiers, names, self._known.heads_depth, num_answers),
            shares_host=self._known.shares_host,
        )

    def verified(self, verification: TimedVerification) -> None:
        """Let the orchestrator learn from an answered verification."""
        if self.model.measures:
            self.latencies.verified(verification)

    def drafted(self, drafter: int, draft: TimedDraft) -> None:
        """Let the orchestrator learn from levels that a drafter has answered."""
        if self.model.measures:
            self.latencies.drafted(str(drafter), draft)

    def verify(self, job: SimulatedJob) -> None:
        """Send a job to the least busy live replica; if there is none, the job waits for one."""
        if job.is_cancelled:
            return
        live = [server for server in self.verifiers if server.alive]
        if live:
            min(live, key=lambda server: server.num_jobs).submit(job)
        else:
            self._stranded.append(job)

    def draft(self, drafter: int, job: SimulatedJob) -> None:
        """Send a job to the least busy replica of a drafter."""
        if job.is_cancelled:
            return
        first = drafter * self.model.drafter_replicas
        replicas = self.drafters[first : first + self.model.drafter_replicas]
        min(replicas, key=lambda server: server.num_jobs).submit(job)

    def cancel(self, job: SimulatedJob) -> None:
        """Drop a job, wherever it is, even if it arrives later."""
        job.is_cancelled = True
        if job in self._stranded:
            self._stranded.remove(job)
        if job.server is not None:
            job.server.cancel(job)

    def _set_alive(self, replica: int, alive: bool) -> None:
        server = self.verifiers[replica]
        if server.alive == alive:
            return
        if alive:
            server.alive = True
            stranded, self._stranded = self._stranded, []
            for job in stranded:
                self.verify(job)
        else:
            server.die()
        for callback in list(self.on_change):
            callback()


def _known(model: MeshModel) -> Capacity:
    """Return the capacity of an idle mesh, but for the number of its servers."""
    costs = model.costs
    drafter = costs.drafters[0] if costs.drafters else None
    return Capacity(
        target_s=(costs.target.ms(_ONE) + costs.verify_hop.ms(0)) / 1e3,
        target_decoding_s=costs.target.ms(_ONE) / 1e3,
        target_token_s=_token_s(costs.target),
        drafter_s=drafter.ms(_ONE) / 1e3 if drafter else None,
        drafter_sibling_s=_token_s(drafter) if drafter else 0.0,
        heads_s=costs.heads.ms(_ONE) / 1e3 if costs.heads else None,
        heads_sibling_s=_token_s(costs.heads) if costs.heads else 0.0,
        heads_depth=model.heads_depth if costs.heads else 0,
        hop_s=costs.draft_hop.ms(0) / 1e3,
        shares_host=costs.contention != Contention() or bool(costs.cores),
    )


def _seconds(law: Law, num_rows: int) -> float:
    return law.ms(ForwardShape(tokens=num_rows)) / 1e3


def _token_s(law: Law) -> float:
    """Return the seconds that one more token adds to a forward of few."""
    return max(0.0, law.ms(_SEVERAL) - law.ms(_ONE)) / (_SEVERAL.tokens - _ONE.tokens) / 1e3
