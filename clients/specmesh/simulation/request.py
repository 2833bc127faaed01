"""One request on the virtual clock: it performs a strategy's commands and feeds back events.

It is the counterpart of ``driver.py``; the strategy cannot tell the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

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
    TaskId,
    Verify,
)
from specmesh.orchestrator.strategies.events import (
    Assessed,
    Capacity,
    Drafted,
    Event,
    Failed,
    Released,
    Verified,
)
from specmesh.simulation.law import ForwardShape
from specmesh.simulation.levels import DraftedLevels
from specmesh.simulation.mesh import SimulatedMesh
from specmesh.simulation.models import HEADS, Context, VirtualModels
from specmesh.simulation.servers import SimulatedJob, Step

FIRST_DRAFT_TOKENS = 2
"""Number of tokens in a draft's first forward: a drafter also reads the last token that it drafted
itself."""
_SEVERAL = 8
"""Size of the forward by which strategies are told what a token adds."""


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
        self._number = number
        self._strategy = strategy
        self._models = models
        self._mesh = mesh
        self._observe = observe
        self._context = models.begin(prompt)
        """The context after all committed tokens, prompt included."""
        self._jobs: dict[TaskId, SimulatedJob] = {}

    def start(self) -> None:
        """Start the strategy now."""
        self.began_s = self._mesh.clock.now
        self._mesh.on_change.append(self._capacity_changed)
        self._perform(self._strategy.start(self._capacity()))

    def _capacity(self) -> Capacity:
        model, costs = self._mesh.model, self._mesh.model.costs
        one, several = (ForwardShape(tokens=tokens) for tokens in (1, _SEVERAL))
        alone_ms, several_ms = costs.target.ms(one), costs.target.ms(several)
        return Capacity(
            num_verifiers=self._mesh.num_live_verifiers,
            drafters=tuple(range(self._models.num_drafters)),
            target_s=(alone_ms + costs.verify_hop.ms(0)) / 1e3,
            target_token_s=max(0.0, several_ms - alone_ms) / (_SEVERAL - 1) / 1e3,
            drafter_s=costs.drafters[0].ms(one) / 1e3 if costs.drafters else None,
            heads_s=costs.heads.ms(one) / 1e3 if costs.heads else None,
            heads_depth=model.heads_depth if costs.heads else 0,
        )

    def _capacity_changed(self) -> None:
        if self.reason is None:
            self._handle(self._capacity())

    def _handle(self, event: Event) -> None:
        if self.reason is not None:
            return
        if self._observe:
            self._observe(self._mesh.clock.now, event)
        self.stats.handled(event)
        self._perform(self._strategy.handle(event))

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
                    self._draft(command)
                case Verify():
                    self.stats.sent(command)
                    self._verify(command)
                case Assess():
                    self._assess(command)
                case Cancel(task=task):
                    self.stats.cancelled(command)
                    self._cancel(task)
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
        for task in list(self._jobs):
            self._cancel(task)

    # Calls

    def _verify(self, command: Verify) -> None:
        context = self._context.after(command.path)
        hop_s = self._mesh.model.costs.verify_hop.ms(len(command.tree)) / 2e3

        def retry() -> None:  # as in a real mesh
            job.work, job.step = self._verification(command, context, hop_s), None
            self._mesh.verify(job)

        job = SimulatedJob(self._number, self._verification(command, context, hop_s), lost=retry)
        self._jobs[command.task] = job
        self._after(hop_s, lambda: self._mesh.verify(job))

    def _verification(self, command: Verify, context: Context, hop_s: float) -> Iterator[Step]:
        yield Step(len(command.tree) + 1, context.length)
        verdict = self._models.verdict(context, command)
        accepted = command.tree.tokens_on(verdict.accepted_nodes)
        drafted: Drafted | None = None
        if command.next_draft is not None and self._mesh.model.costs.heads is not None:
            levels = self._next_draft(command, context.after((*accepted, verdict.next_token)))
            for level in range(levels.depth):
                if levels.ended:
                    break
                yield Step(levels.width, starts=level == 0, heads=True)
                levels.grow()
            drafted = levels.event(last=True)
        self._answer(command.task, Verified(command.task, verdict, drafted), hop_s, last=True)

    def _next_draft(self, command: Verify, context: Context) -> DraftedLevels:
        """Return the draft of the target's heads after ``context``."""
        asked = command.next_draft
        assert asked is not None
        draft = Draft(
            *(command.task, (), min(asked.depth, self._mesh.model.heads_depth)),
            num_choices=asked.num_choices,
            drafter=HEADS,
            stop=asked.stop,
            growth=asked.growth,
        )
        return DraftedLevels(self._models, draft, context)

    def _assess(self, command: Assess) -> None:
        """Keep no token, because a simulated drafter's confidence says nothing about a single
        one."""
        task, hop_s = command.task, self._mesh.model.costs.draft_hop.ms(0) / 2e3
        self._jobs[task] = SimulatedJob(self._number, iter(()), lost=lambda: None)

        def assessed() -> None:
            kept = (False,) * len(command.positions)
            self._answer(task, Assessed(task, kept), hop_s, last=False)
            self._answer(task, Released(task), hop_s, last=True)

        self._after(hop_s, assessed)

    def _draft(self, command: Draft) -> None:
        levels = DraftedLevels(self._models, command, self._context.after(command.path))
        num_nodes = command.growth.max_nodes if command.growth else command.depth
        hop_s = self._mesh.model.costs.draft_hop.ms(num_nodes) / 2e3

        def lost() -> None:
            self._answer(command.task, Failed(command.task), hop_s, last=True)

        job = SimulatedJob(self._number, self._drafting(command, levels, hop_s), lost)
        self._jobs[command.task] = job
        self._after(hop_s, lambda: self._mesh.draft(command.drafter, job))

    def _drafting(self, command: Draft, levels: DraftedLevels, hop_s: float) -> Iterator[Step]:
        faults, rng = self._mesh.model.faults, self._mesh.rng
        fails_at = 0
        if faults.draft_failure and rng.random() < faults.draft_failure:
            fails_at = rng.randint(1, command.depth)
        for level in range(1, command.depth + 1):
            tokens = FIRST_DRAFT_TOKENS if level == 1 else levels.width
            yield Step(tokens, levels.context_length, starts=level == 1)
            if level == fails_at:
                self._answer(command.task, Failed(command.task), hop_s, last=True)
                return
            levels.grow()
            last = level == command.depth or levels.ended
            if last or level % command.levels_per_message == 0:
                self._answer(command.task, levels.event(last), hop_s, last)
            if last:
                return

    def _after(self, delay_s: float, action: Callable[[], None]) -> None:
        if delay_s:
            self._mesh.clock.after(delay_s, action)
        else:
            action()

    def _answer(self, task: TaskId, event: Event, delay_s: float, last: bool) -> None:
        faults, rng = self._mesh.model.faults, self._mesh.rng
        if faults.max_delay_s and last:  # The parts of one stream must stay in order.
            delay_s += rng.random() * faults.max_delay_s

        def arrive() -> None:
            if task in self._jobs:
                if last:
                    del self._jobs[task]
                self._handle(event)
                if last and faults.repeated_answer and rng.random() < faults.repeated_answer:
                    self._handle_unwanted(event)
            elif faults.late_answer and rng.random() < faults.late_answer:
                self._handle_unwanted(event)

        self._mesh.clock.after(delay_s, arrive)

    def _cancel(self, task: TaskId) -> None:
        if job := self._jobs.pop(task, None):
            hop_s = self._mesh.model.costs.verify_hop.ms(0) / 2e3
            self._after(hop_s, lambda: self._mesh.cancel(job))
