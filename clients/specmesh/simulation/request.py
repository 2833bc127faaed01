"""One request on the virtual clock: it performs a strategy's commands and feeds back events.

It is the counterpart of ``driver.py``; the strategy cannot tell the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specmesh.decoding.drafting import Drawn, TopK
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.growth import Children, Guess, is_last, next_level
from specmesh.orchestrator.driver.stats import RequestStats
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
    GiveUp,
    Released,
    StopReason,
    Strategy,
    TaskId,
    Verified,
    Verify,
)
from specmesh.simulation.mesh import SimulatedMesh
from specmesh.simulation.models import HEADS, Context, VirtualModels
from specmesh.simulation.servers import SimulatedJob


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
        model = self._mesh.model
        quantile = 0.5  # the median
        alone_s, with_token_s = (
            model.target_latency.forward_s(first=False, quantile=quantile, num_nodes=num_nodes)
            for num_nodes in (1, 2)
        )
        return Capacity(
            num_verifiers=self._mesh.num_live_verifiers,
            drafters=tuple(range(self._models.num_drafters)),
            target_s=alone_s + 2 * model.hop_s,
            target_token_s=with_token_s - alone_s,
            drafter_s=model.drafter_latencies[0].forward_s(
                first=False, quantile=quantile, num_nodes=1
            )
            if model.drafter_latencies
            else None,
            heads_s=model.heads_s,
            heads_depth=model.heads_depth if model.heads_s is not None else 0,
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
        job: SimulatedJob

        def forwarded() -> None:
            self._answer(command.task, Verified(command.task, verdict, drafted), last=True)

        context = self._context.after(command.path)
        verdict = self._models.verdict(context, command)
        accepted = command.tree.tokens_on(verdict.accepted_nodes)
        drafted, heads_s = self._next_draft(command, context.after((*accepted, verdict.next_token)))
        # A lost verification is retried, as in a real mesh.
        job = SimulatedJob(
            *(self._number, 1, forwarded, lambda: self._mesh.verify(job)),
            num_nodes=len(command.tree) + 1,
            heads_s=heads_s,
        )
        self._jobs[command.task] = job
        self._after_hop(lambda: self._mesh.verify(job))

    def _next_draft(self, command: Verify, context: Context) -> tuple[Drafted | None, float]:
        """Return the draft of the target's heads after ``context``, if it has any, and its time."""
        asked, level_s = command.next_draft, self._mesh.model.heads_s
        if asked is None or level_s is None:
            return None, 0.0
        levels = _Levels(
            self._models,
            Draft(
                *(command.task, (), asked.depth),
                num_choices=asked.num_choices,
                drafter=HEADS,
                stop=asked.stop,
                growth=asked.growth,
            ),
            context,
        )
        depth, num_levels = min(asked.depth, self._mesh.model.heads_depth), 0
        while num_levels < depth and not levels.ended:
            levels.grow()
            num_levels += 1
        return levels.event(last=True), num_levels * level_s

    def _assess(self, command: Assess) -> None:
        """Keep no token, because a simulated drafter's confidence says nothing about a single
        one."""
        task, waits = command.task, SimulatedJob(self._number, 1, lambda: None, lambda: None)
        self._jobs[task] = waits

        def assessed() -> None:
            self._answer(task, Assessed(task, (False,) * len(command.positions)), last=False)
            self._answer(task, Released(task), last=True)

        self._after_hop(assessed)

    def _draft(self, command: Draft) -> None:
        levels = _Levels(self._models, command, self._context.after(command.path))
        faults, rng = self._mesh.model.faults, self._mesh.rng
        fails_at = command.depth + 1
        if faults.draft_failure and rng.random() < faults.draft_failure:
            fails_at = rng.randint(1, command.depth)
        job: SimulatedJob

        def forwarded() -> None:
            if job.num_done == fails_at:
                self._mesh.cancel(job)
                self._answer(command.task, Failed(command.task), last=True)
                return
            levels.grow()
            last = job.num_done == command.depth or levels.ended
            if levels.ended:
                self._mesh.cancel(job)
            if last or job.num_done % command.levels_per_message == 0:
                self._answer(command.task, levels.event(last), last)

        job = SimulatedJob(
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
        faults, rng = self._mesh.model.faults, self._mesh.rng
        delay_s = self._mesh.model.hop_s
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
            self._after_hop(lambda: self._mesh.cancel(job))


class _Levels:
    """A draft by a simulated drafter, which grows level by level."""

    def __init__(self, models: VirtualModels, command: Draft, context: Context) -> None:
        self.ended = False
        """Whether nothing is left to draft, or going on isn't worthwhile."""
        self._models = models
        self._command = command
        contexts = context.of_nodes(command.tree)
        self._tips = [(node, contexts[node], 1.0) for node in command.from_nodes]
        """Nodes to draft from: number, context, and probability that the whole path to it is
        accepted."""
        self._num_nodes = 0
        """Number of nodes drafted so far."""
        self._begin_message()

    def _begin_message(self) -> None:
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._distributions: dict[int, Distribution] = {}
        self._choices: dict[int, TopK] = {}

    def grow(self) -> None:
        """Draft one more level."""
        growth, stop = self._command.growth, self._command.stop
        count = growth.max_nodes - self._num_nodes if growth else 1
        drawn = [self._models.guess(context, self._command, count) for _, context, _ in self._tips]
        guesses = [Guess(tip[2], each) for tip, each in zip(self._tips, drawn, strict=True)]
        level = next_level(guesses, stop, growth, self._num_nodes)
        tips, self._tips = self._tips, []
        for (node, context, _), each, children in zip(tips, drawn, level, strict=True):
            self._add(node, context, each, children)
        self.ended = not self._tips or is_last(level, stop, growth, self._num_nodes)

    def _add(self, node: int, context: Context, drawn: Drawn, children: Children) -> None:
        if not children.token_ids:
            return
        if drawn.distribution is not None:
            self._distributions[node] = drawn.distribution
        if drawn.choices is not None:
            self._choices[node] = drawn.choices
        for token, chance in zip(children.token_ids, children.chances, strict=True):
            self._tokens.append(token)
            self._parents.append(node)
            self._num_nodes += 1
            number = len(self._command.tree) + self._num_nodes
            self._tips.append((number, context.after((token,)), chance))

    def event(self, last: bool) -> Drafted:
        """Return an event with everything since the last message."""
        event = Drafted(
            self._command.task,
            tuple(self._tokens),
            tuple(self._parents),
            self._distributions,
            last,
            self._choices,
        )
        self._begin_message()
        return event
