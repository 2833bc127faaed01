"""The simulated mesh: which server a call goes to, and what becomes of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specmesh.orchestrator.simulation.clock import Clock
from specmesh.orchestrator.simulation.latency import Latency
from specmesh.orchestrator.simulation.servers import SimulatedJob, SimulatedServer


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong. Rates are probabilities; everything is drawn with the mesh's seed."""

    draft_failure: float = 0.0
    """Of a draft call, at one of its levels."""
    late_answer: float = 0.0
    """Of an answer that comes although its task was cancelled."""
    repeated_answer: float = 0.0
    """Of an answer that comes a second time."""
    max_delay_s: float = 0.0
    """Answers come up to so much later than they left, each as it happens."""
    outages: Sequence[tuple[float, int, bool]] = ()
    """(seconds, replica of the target, whether it is live from then on)."""


@dataclass(frozen=True, slots=True)
class MeshModel:
    """What the mesh is made of. ``hop_s`` is the way there, and again the way back."""

    target_latency: Latency
    drafter_latencies: tuple[Latency, ...]
    num_verifiers: int = 1
    hop_s: float = 0.0
    faults: Faults = field(default_factory=Faults)


class SimulatedMesh:
    """Replicas of the target, and one server for each different drafter."""

    def __init__(self, clock: Clock, model: MeshModel, seed: int) -> None:
        self.clock = clock
        self.model = model
        self.dice = random.Random(seed)  # noqa: S311 - a simulation must repeat
        luck = self.dice.random
        self.verifiers = [
            SimulatedServer(clock, model.target_latency, luck) for _ in range(model.num_verifiers)
        ]
        self.drafters = [
            SimulatedServer(clock, latency, luck) for latency in model.drafter_latencies
        ]
        self.on_change: list[Callable[[], None]] = []
        """Told when a replica has left or joined."""
        self._stranded: list[SimulatedJob] = []
        for time_s, replica, alive in model.faults.outages:
            clock.after(time_s, lambda r=replica, a=alive: self._set_alive(r, a))  # type: ignore[misc]

    @property
    def num_live_verifiers(self) -> int:
        """How many replicas can be sent to."""
        return sum(server.alive for server in self.verifiers)

    def verify(self, job: SimulatedJob) -> None:
        """Send a job to the least busy live replica; without any it waits for one."""
        live = [server for server in self.verifiers if server.alive]
        if live:
            min(live, key=lambda server: server.num_jobs).submit(job)
        else:
            self._stranded.append(job)

    def draft(self, drafter: int, job: SimulatedJob) -> None:
        """Send a job to a drafter."""
        self.drafters[drafter].submit(job)

    def cancel(self, job: SimulatedJob) -> None:
        """Drop a job, wherever it is."""
        if job in self._stranded:
            self._stranded.remove(job)
        for server in (*self.verifiers, *self.drafters):
            server.cancel(job)

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
        for told in self.on_change:
            told()
