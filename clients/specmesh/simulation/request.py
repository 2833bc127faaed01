"""One request on the virtual clock: it performs a strategy's commands and feeds back events.

It is the counterpart of ``driver/mesh_driver.py`` in the orchestrator; the strategy cannot tell the
two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specmesh.orchestrator.driver.stats import RequestStats
from specmesh.orchestrator.strategies.base import Strategy
from specmesh.orchestrator.strategies.commands import (
    Assess,
    Cancel,
    Command,
    Commit,
    Draft,
    Finish,
    GiveUp,
    StopReason,
    Verify,
)
from specmesh.orchestrator.strategies.events import Capacity, Event, Verified
from specmesh.simulation.calls import SimulatedCalls
from specmesh.simulation.mesh import SimulatedMesh
from specmesh.simulation.models import VirtualModels


class SimulatedRequest:
    """One request. ``observe`` is called with every command and event, for timelines."""

    def __init__(
        self,
        number: int,
        strategy: Strategy,
        models: VirtualModels,
        mesh: SimulatedMesh,
        prompt: Sequence[int] = (0,),
        observe: Callable[[float, Command | Event], None] | None = None,
    ) -> None:
        self.token_ids: list[int] = []
        self.reason: StopReason | None = None
        self.began_s = self.ended_s = 0.0
        self.commit_times_s: list[float] = []
        """Time at which each token was committed."""
        self.stats = RequestStats()
        self.num_further_tokens = 0
        """Tokens with which verifications went on by themselves."""
        self._strategy = strategy
        self._mesh = mesh
        self._num_drafters = models.num_drafters
        self._observe = observe
        self._context = models.begin(prompt)
        """The context after all committed tokens, prompt included."""
        self._calls = SimulatedCalls(number, models, mesh, self._handle, self._handle_unwanted)
        self._calls.before_answer = self._tell_capacity
        self._capacity = Capacity()

    def start(self) -> None:
        """Start the strategy now."""
        self.began_s = self._mesh.clock.now
        self._mesh.on_change.append(self._tell_capacity)
        self._capacity = self._mesh.capacity(self._num_drafters)
        self._strategy.now = self.began_s
        self._perform(self._strategy.start(self._capacity))

    def _tell_capacity(self) -> None:
        """Tell the strategy of the mesh's capacity if it is another than before."""
        capacity = self._mesh.capacity(self._num_drafters)
        if capacity != self._capacity:
            self._capacity = capacity
            self._handle(capacity)

    def _handle(self, event: Event) -> None:
        if self.reason is not None:
            return
        if self._observe:
            self._observe(self._mesh.clock.now, event)
        self.stats.handled(event)
        self._strategy.now = self._mesh.clock.now
        self._perform(self._strategy.handle(event))
        if isinstance(event, Verified) and self._calls.goes_on(event):
            self.stats.goes_on(event)
            self.num_further_tokens += 1

    def _handle_unwanted(self, event: Event) -> None:
        """Feed an event that the driver would drop, without counting it."""
        if self.reason is None:
            self._perform(self._strategy.handle(event))

    def _perform(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if self._observe:
                self._observe(self._mesh.clock.now, command)
            match command:
                case Draft():
                    self._calls.draft(command, self._context)
                case Verify():
                    self.stats.sent(command)
                    self._calls.verify(command, self._context)
                case Assess():
                    self._calls.assess(command)
                case Cancel(task=task):
                    self.stats.cancelled(command)
                    self._calls.cancel(task)
                case Commit():
                    self._commit(command)
                case Finish(reason=reason):
                    self._end(reason)
                case GiveUp():
                    raise AssertionError("the simulated target never fails for good")

    def _commit(self, command: Commit) -> None:
        self.stats.committed(command)
        self.token_ids += command.token_ids
        self.commit_times_s += [self._mesh.clock.now] * len(command.token_ids)
        self._context = self._context.after(command.token_ids)

    def _end(self, reason: StopReason) -> None:
        self.reason, self.ended_s = reason, self._mesh.clock.now
        self._mesh.on_change.remove(self._tell_capacity)
        self._calls.end()
