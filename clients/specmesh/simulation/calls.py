"""The calls of one request to the servers of a simulated mesh.

They are the counterpart of ``replicas/calls`` in the orchestrator, and report to the mesh what an
orchestrator would learn from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from specmesh.decoding.trees.tree import EMPTY
from specmesh.orchestrator.replicas.latencies.observations import (
    ReplicaCost,
    TimedDraft,
    TimedVerification,
)
from specmesh.orchestrator.strategies.commands import Assess, Draft, TaskId, Verify
from specmesh.orchestrator.strategies.events import Assessed, Drafted, Failed, Released, Verified
from specmesh.simulation.levels import DraftedLevels
from specmesh.simulation.mesh import SimulatedMesh
from specmesh.simulation.models import HEADS, Context, VirtualModels
from specmesh.simulation.servers import SimulatedJob, Step

FIRST_DRAFT_TOKENS = 2
"""Number of tokens in a draft's first forward: a drafter also reads the last token that it drafted
itself."""

Answer = Drafted | Verified | Assessed | Released | Failed
"""The answer to a call."""


@dataclass(slots=True)
class _Current:
    """The verification that a task has come to: that of ``command`` after ``context``."""

    command: Verify
    context: Context

    def go_on(self, path: Sequence[int]) -> None:
        """Go on with a further token behind those of the verdict, ``path``."""
        num_left = self.command.num_further - 1
        self.command = Verify(self.command.task, (), EMPTY, num_further=num_left)
        self.context = self.context.after(path)


class SimulatedCalls:
    """The calls of request ``number``. ``deliver`` gets the answers of tasks that were not
    cancelled, ``unwanted`` those that the driver would drop."""

    def __init__(
        self,
        number: int,
        models: VirtualModels,
        mesh: SimulatedMesh,
        deliver: Callable[[Answer], None],
        unwanted: Callable[[Answer], None],
    ) -> None:
        self.before_answer: Callable[[], None] = lambda: None
        """Called before an answer is delivered, after what it took was learnt; it may cancel the
        task."""
        self._number = number
        self._models = models
        self._mesh = mesh
        self._deliver = deliver
        self._unwanted = unwanted
        self._jobs: dict[TaskId, SimulatedJob] = {}

    def verify(self, command: Verify, context: Context) -> None:
        """Have the tree of ``command`` verified; ``context`` is what its path starts from."""
        hop_s = self._mesh.model.costs.verify_hop.ms(len(command.tree)) / 2e3
        current = _Current(command, context.after(command.path))

        def begin() -> None:
            began_s = self._mesh.clock.now
            job.work, job.step = self._verifications(job, current, hop_s, began_s), None

        def retry() -> None:  # as in a real mesh
            begin()
            self._mesh.verify(job)

        job = SimulatedJob(self._number, iter(()), lost=retry, hop_s=hop_s)
        begin()
        self._jobs[command.task] = job
        self._after(hop_s, lambda: self._mesh.verify(job))

    def goes_on(self, verified: Verified) -> bool:
        """Return whether the task that was ``verified`` goes on with a further token."""
        return verified.more and verified.task in self._jobs

    def _verifications(
        self, job: SimulatedJob, current: _Current, hop_s: float, began_s: float
    ) -> Iterator[Step]:
        """Verify the ``current`` tree, and decode the further tokens of its task."""
        is_further, more = False, True
        while more:
            command, context = current.command, current.context
            num_drafted = len(command.tree)
            yield Step(num_drafted + 1, context.length)
            cost = _cost(job, job.forward.seconds, num_drafted + 1)
            verdict = self._models.verdict(context, command)
            path = (*command.tree.tokens_on(verdict.accepted_nodes), verdict.next_token)
            drafted: Drafted | None = None
            heads_s, num_levels, num_nodes = 0.0, 0, 0
            if command.next_draft is not None and self._mesh.model.costs.heads is not None:
                levels = self._next_draft(command, context.after(path))
                for level in range(levels.depth):
                    if levels.ended:
                        break
                    yield Step(levels.width, starts=level == 0, heads=True)
                    heads_s += job.forward.seconds
                    levels.grow()
                num_levels = levels.num_levels
                drafted = levels.event(last=True)
                num_nodes = len(drafted.token_ids)
            more = command.num_further > 0 and not job.others_wait
            verified = Verified(command.task, verdict, drafted, more=more)
            timed = TimedVerification(
                *(self._mesh.clock.now - began_s, num_drafted, cost),
                *(heads_s, num_levels, num_nodes),
                is_further=is_further,
            )
            learn = partial(self._learn, timed, began_s)
            self._answer(verified, hop_s, last=not more, learn=learn)
            began_s, is_further, job.queue_s = self._mesh.clock.now, True, 0.0
            current.go_on(path)

    def _learn(self, timed: TimedVerification, began_s: float) -> None:
        """Learn from an answer that arrives now, to a call that ``began_s``."""
        if not timed.is_further:
            timed = timed._replace(seconds=self._mesh.clock.now - began_s)
        self._mesh.verified(timed)

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

    def assess(self, command: Assess) -> None:
        """Keep no token, because a simulated drafter's confidence says nothing about a single
        one."""
        task, hop_s = command.task, self._mesh.model.costs.draft_hop.ms(0) / 2e3
        self._jobs[task] = SimulatedJob(self._number, iter(()), lost=lambda: None)

        def assessed() -> None:
            kept = (False,) * len(command.positions)
            self._answer(Assessed(task, kept), hop_s, last=False)
            self._answer(Released(task), hop_s, last=True)

        self._after(hop_s, assessed)

    def draft(self, command: Draft, context: Context) -> None:
        """Have ``command`` drafted; ``context`` is what its path starts from."""
        levels = DraftedLevels(self._models, command, context.after(command.path))
        num_nodes = command.growth.max_nodes if command.growth else command.depth
        hop_s = self._mesh.model.costs.draft_hop.ms(num_nodes) / 2e3

        def lost() -> None:
            self._answer(Failed(command.task), hop_s, last=True)

        job = SimulatedJob(self._number, iter(()), lost, hop_s=hop_s)
        job.work = self._drafting(job, command, levels, hop_s)
        self._jobs[command.task] = job
        self._after(hop_s, lambda: self._mesh.draft(command.drafter, job))

    def _drafting(
        self, job: SimulatedJob, command: Draft, levels: DraftedLevels, hop_s: float
    ) -> Iterator[Step]:
        faults, rng = self._mesh.model.faults, self._mesh.rng
        fails_at = 0
        if faults.draft_failure and rng.random() < faults.draft_failure:
            fails_at = rng.randint(1, command.depth)
        forward_s, num_computed = 0.0, 0
        for level in range(1, command.depth + 1):
            tokens = FIRST_DRAFT_TOKENS if level == 1 else levels.width
            yield Step(tokens, levels.context_length, starts=level == 1)
            if level == fails_at:
                self._answer(Failed(command.task), hop_s, last=True)
                return
            forward_s, num_computed = forward_s + job.forward.seconds, num_computed + tokens
            levels.grow()
            last = level == command.depth or levels.ended
            if last or level % command.levels_per_message == 0:
                cost = _cost(job, forward_s, num_computed)
                self._answer_levels(command, levels, cost, hop_s, last=last)
                forward_s, num_computed = 0.0, 0
            if last:
                return

    def _answer_levels(
        self, command: Draft, levels: DraftedLevels, cost: ReplicaCost, hop_s: float, *, last: bool
    ) -> None:
        num_levels, drafted = levels.num_levels, levels.event(last)
        timed = TimedDraft(num_levels, len(drafted.token_ids), cost)
        learn = partial(self._mesh.drafted, command.drafter, timed)
        self._answer(drafted, hop_s, last=last, learn=learn)

    def cancel(self, task: TaskId) -> None:
        """Cancel a task, unless it has ended."""
        if job := self._jobs.pop(task, None):
            self._after(job.hop_s, lambda: self._mesh.cancel(job))

    def end(self) -> None:
        """Cancel every task."""
        for task in list(self._jobs):
            self.cancel(task)

    def _after(self, delay_s: float, action: Callable[[], None]) -> None:
        if delay_s:
            self._mesh.clock.after(delay_s, action)
        else:
            action()

    def _answer(
        self,
        event: Answer,
        delay_s: float,
        *,
        last: bool,
        learn: Callable[[], None] | None = None,
    ) -> None:
        faults, rng = self._mesh.model.faults, self._mesh.rng
        if faults.max_delay_s and last:  # The parts of one stream must stay in order.
            delay_s += rng.random() * faults.max_delay_s

        def arrive() -> None:
            if event.task not in self._jobs:
                if faults.late_answer and rng.random() < faults.late_answer:
                    self._unwanted(event)
                return
            if learn is not None:
                learn()
            self.before_answer()
            if event.task not in self._jobs:
                return
            if last:
                del self._jobs[event.task]
            self._deliver(event)
            if last and faults.repeated_answer and rng.random() < faults.repeated_answer:
                self._unwanted(event)

        self._mesh.clock.after(delay_s, arrive)


def _cost(job: SimulatedJob, forward_s: float, num_computed: int) -> ReplicaCost:
    """Return what the server of ``job`` would report after a forward of it."""
    forward = job.forward
    return ReplicaCost(job.queue_s, forward_s, num_computed, forward.calls, forward.tokens)
