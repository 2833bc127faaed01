"""One request on the virtual clock: performs a strategy's commands and hands in what happens.

The counterpart of ``driver.py``; the strategy cannot tell the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.drafting import Choices, highest_entropy
from specmesh.decoding.simulated import SimulatedDrafter, SimulatedTarget
from specmesh.orchestrator.simulation.mesh import SimulatedMesh
from specmesh.orchestrator.simulation.servers import Job
from specmesh.orchestrator.strategies.base import (
    Assess,
    Assessed,
    Cancel,
    Capacity,
    Command,
    Commit,
    Draft,
    Drafted,
    Event,
    Failed,
    Finish,
    FinishReason,
    GiveUp,
    Released,
    Strategy,
    TaskId,
    Verified,
    Verify,
)
from specmesh.orchestrator.tally import Tally


@dataclass(frozen=True, slots=True)
class Models:
    """Who says what: the target and the drafters, in the order in which they are preferred."""

    target: SimulatedTarget
    drafters: tuple[SimulatedDrafter, ...]


class Request:
    """One answer. ``observe`` is told every command and event, for timelines."""

    def __init__(
        self,
        number: int,
        strategy: Strategy,
        models: Models,
        mesh: SimulatedMesh,
        prompt: Sequence[int] = (0,),
        observe: Callable[[float, Command | Event], None] | None = None,
    ) -> None:
        self.token_ids: list[int] = []
        self.reason: FinishReason | None = None
        self.began_s = self.ended_s = 0.0
        self.commit_times_s: list[float] = []
        """When each token was committed."""
        self.tally = Tally()
        self._number = number
        self._strategy = strategy
        self._models = models
        self._mesh = mesh
        self._observe = observe
        self._state = models.target.after(models.target.start, prompt)
        """The hash of everything committed, prompt included."""
        self._jobs: dict[TaskId, Job] = {}

    def start(self) -> None:
        """Begin now."""
        self.began_s = self._mesh.clock.now
        self._mesh.on_change.append(self._capacity_changed)
        self._perform(self._strategy.start(self._capacity()))

    def _capacity(self) -> Capacity:
        model = self._mesh.model
        luck = 0.5  # the median
        return Capacity(
            num_verifiers=self._mesh.num_live_verifiers,
            num_drafters=len(self._models.drafters),
            target_s=model.target_latency.forward_s(first=False, luck=luck) + 2 * model.hop_s,
            drafter_s=model.drafter_latencies[0].forward_s(first=False, luck=luck)
            if model.drafter_latencies
            else None,
        )

    def _capacity_changed(self) -> None:
        if self.reason is None:
            self._handle(self._capacity())

    def _handle(self, event: Event) -> None:
        if self.reason is not None:
            return
        if self._observe:
            self._observe(self._mesh.clock.now, event)
        self.tally.happened(event)
        self._perform(self._strategy.handle(event))

    def _handle_unwanted(self, event: Event) -> None:
        """An answer that the driver would drop; it counts for nothing."""
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
                    self.tally.asked(command)
                    self._verify(command)
                case Assess():
                    self._assess(command)
                case Cancel(task=task):
                    self._cancel(task)
                case Commit():
                    self._commit(command)
                case Finish(reason=reason):
                    self._end(reason)
                case GiveUp():
                    raise AssertionError("the simulated target never fails for good")

    def _commit(self, command: Commit) -> None:
        self.tally.committed(command)
        self.token_ids += command.token_ids
        self.commit_times_s += [self._mesh.clock.now] * len(command.token_ids)
        self._state = self._models.target.after(self._state, command.token_ids)

    def _end(self, reason: FinishReason) -> None:
        self.reason, self.ended_s = reason, self._mesh.clock.now
        for task in list(self._jobs):
            self._cancel(task)

    # Calls

    def _verify(self, command: Verify) -> None:
        job: Job

        def forwarded() -> None:
            self._answer(command.task, Verified(command.task, verdict), last=True)

        verdict = self._verdict(command)
        # A verification that is lost is sent again, as the mesh does.
        job = Job(self._number, 1, forwarded, lost=lambda: self._mesh.verify(job))
        self._jobs[command.task] = job
        self._after_hop(lambda: self._mesh.verify(job))

    def _verdict(self, command: Verify) -> Verdict:
        target, tree = self._models.target, command.tree
        state, node = target.after(self._state, command.path), 0
        accepted: list[int] = []
        while True:
            token = target.token(state)
            child = tree.child_with(node, token)
            if child is None:
                return Verdict(tuple(accepted), token, recovered=bool(tree.children(node)))
            accepted.append(child)
            node, state = child, target.after(state, (token,))

    def _assess(self, command: Assess) -> None:
        """Keep nothing: how sure a simulated drafter is says nothing of the single token."""
        task, waits = command.task, Job(self._number, 1, lambda: None, lambda: None)
        self._jobs[task] = waits

        def assessed() -> None:
            self._answer(task, Assessed(task, (False,) * len(command.places)), last=False)
            self._answer(task, Released(task), last=True)

        self._after_hop(assessed)

    def _draft(self, command: Draft) -> None:
        levels = _Levels(self._models, command, self._state)
        faults, dice = self._mesh.model.faults, self._mesh.dice
        fails_at = command.depth + 1
        if faults.draft_failure and dice.random() < faults.draft_failure:
            fails_at = dice.randint(1, command.depth)
        job: Job

        def forwarded() -> None:
            if job.num_done == fails_at:
                self._mesh.cancel(job)
                self._answer(command.task, Failed(command.task), last=True)
                return
            levels.grow()
            last = job.num_done == command.depth or levels.stopped
            if levels.stopped:
                self._mesh.cancel(job)
            if last or job.num_done % command.levels_per_message == 0:
                self._answer(command.task, levels.event(last), last)

        job = Job(
            self._number,
            command.depth,
            forwarded,
            lost=lambda: self._answer(command.task, Failed(command.task), last=True),
        )
        self._jobs[command.task] = job
        self._after_hop(lambda: self._mesh.draft(command.drafter, job))

    def _after_hop(self, action: Callable[[], None]) -> None:
        if self._mesh.model.hop_s:
            self._mesh.clock.after(self._mesh.model.hop_s, action)
        else:
            action()

    def _answer(self, task: TaskId, event: Event, last: bool) -> None:
        faults, dice = self._mesh.model.faults, self._mesh.dice
        delay_s = self._mesh.model.hop_s
        if faults.max_delay_s and last:  # parts of one stream stay in order
            delay_s += dice.random() * faults.max_delay_s

        def arrive() -> None:
            if task in self._jobs:
                if last:
                    del self._jobs[task]
                self._handle(event)
                if last and faults.repeated_answer and dice.random() < faults.repeated_answer:
                    self._handle_unwanted(event)
            elif faults.late_answer and dice.random() < faults.late_answer:
                self._handle_unwanted(event)

        self._mesh.clock.after(delay_s, arrive)

    def _cancel(self, task: TaskId) -> None:
        if job := self._jobs.pop(task, None):
            self._after_hop(lambda: self._mesh.cancel(job))


class _Levels:
    """What a simulated drafter says, level by level."""

    def __init__(self, models: Models, command: Draft, state: int) -> None:
        self._drafter = models.drafters[command.drafter]
        self._target = models.target
        self._command = command
        states = [models.target.after(state, command.path)]
        for token, parent in zip(command.tree.token_ids, command.tree.parents, strict=True):
            states.append(models.target.after(states[parent], (token,)))
        self._tips = [(node, states[node]) for node in command.from_nodes]
        self._num_nodes = len(states) - 1
        sure = self._drafter.acceptance
        self._odds = (sure, (1 - sure) * self._drafter.runner_up)
        self._entropy = highest_entropy(self._odds, models.target.vocab_size)
        self._chance = 1.0
        self._begin_message()

    @property
    def stopped(self) -> bool:
        """Whether going on isn't worth it: all tips are equally likely to stand."""
        stop = self._command.stop
        return stop is not None and self._chance < stop.below

    def _begin_message(self) -> None:
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._choices: dict[int, Choices] = {}

    def grow(self) -> None:
        """One more token at every tip."""
        tips = []
        for node, state in self._tips:
            first, second = self._drafter.choices(state)
            self._tokens.append(first)
            self._parents.append(node)
            self._num_nodes += 1
            if self._command.num_choices:
                self._choices[node] = Choices((first, second), self._odds, self._entropy)
            tips.append((self._num_nodes, self._target.after(state, (first,))))
        self._tips = tips
        if self._command.stop is not None:
            self._chance *= self._command.stop.acceptance(self._drafter.acceptance)

    def event(self, last: bool) -> Drafted:
        """Everything since the last message."""
        event = Drafted(
            self._command.task,
            tuple(self._tokens),
            tuple(self._parents),
            {},
            last,
            self._choices,
        )
        self._begin_message()
        return event
