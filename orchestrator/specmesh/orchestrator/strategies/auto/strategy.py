"""Auto: the strategy that is fastest for this answer on this mesh, while it runs.

An answer is a sequence of stretches, each with one of the other strategies and the numbers that it
chooses for itself. After a commit, ``choose`` compares what the strategies are expected to yield, by
the mesh's costs and the rates at which the drafts of this answer are accepted; a new answer begins
with the rates of all answers before it. If another strategy is better by a margin, all tasks of the
current one are cancelled, and the other starts after the committed tokens.

Rejection mode: a change follows from committed tokens, latencies, and other answers. What is thrown
away with a task's tokens is that task's noise; the next strategy's tasks have noise of their own.
This keeps the rule in ``base.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from specmesh.decoding.predict.acceptance_rate import MeshAcceptance
from specmesh.orchestrator.strategies.auto.choice import Choice, choose
from specmesh.orchestrator.strategies.auto.stretch import Stretch
from specmesh.orchestrator.strategies.autoregressive import Autoregressive
from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.orchestrator.strategies.branch_prediction import BranchPrediction, Exhaustive
from specmesh.orchestrator.strategies.commands import Command, Commit, Finish
from specmesh.orchestrator.strategies.dsi import DSI
from specmesh.orchestrator.strategies.events import Capacity, Event
from specmesh.orchestrator.strategies.heads import Heads
from specmesh.orchestrator.strategies.heads_and_drafter import HeadsAndDrafter
from specmesh.orchestrator.strategies.speculative import Speculative
from specmesh.orchestrator.strategies.tree import Tree

CHOICES: Final[Mapping[str, type[Strategy]]] = {
    "autoregressive": Autoregressive,
    "speculative": Speculative,
    "dsi": DSI,
    "branch-prediction": BranchPrediction,
    "exhaustive": Exhaustive,
    "tree": Tree,
    "heads": Heads,
    "heads-and-drafter": HeadsAndDrafter,
}
"""The strategies that are chosen among, by their names."""
LEAST_TOKENS: Final = 8
"""Tokens of a stretch before another strategy is considered: a change costs what was drafted."""


class Auto(Strategy):
    """Runs one stretch after the other. A request's options don't apply: each strategy chooses its
    own numbers."""

    needs_drafter = False
    options = frozenset()

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._acceptance = MeshAcceptance(goal.acceptance)
        self._capacity = Capacity()
        self._choice: Choice | None = None
        self._stretch: Stretch | None = None
        self._num_tokens = 0
        """Number of committed tokens."""
        self._decided_at = 0
        """Their number at the latest decision."""

    def start(self, capacity: Capacity) -> Sequence[Command]:
        """Return the first commands of the first strategy."""
        self._capacity = capacity
        return self._begin(choose(capacity, self._acceptance, None))

    def handle(self, event: Event) -> Sequence[Command]:
        """Return what the current strategy does, or how another takes over after its commit."""
        if isinstance(event, Capacity):
            self._capacity = event
        assert self._stretch is not None
        commands = self._stretch.handle(event)
        committed = [each for each in commands if isinstance(each, Commit)]
        if not committed or isinstance(commands[-1], Finish):
            return commands
        self._num_tokens += sum(len(each.token_ids) for each in committed)
        former = self._choice
        assert former is not None
        if self._num_tokens - self._decided_at < LEAST_TOKENS and not former.tentative:
            return commands
        self._decided_at = self._num_tokens
        choice = choose(self._capacity, self._acceptance, former)
        if (choice.strategy, choice.lookahead) == (former.strategy, former.lookahead):
            self._choice = choice
            return commands
        return [*self._stretch.end(commands), *self._begin(choice)]

    def _begin(self, choice: Choice) -> list[Command]:
        self._choice = choice
        goal = Goal(
            self._goal.max_tokens - self._num_tokens,
            self._goal.end_of_text_ids,
            self._goal.stop_token_ids,
            lookahead=choice.lookahead,
            seed=self._goal.seed,
            acceptance=self._acceptance,
        )
        after = 0 if self._stretch is None else self._stretch.last_task
        self._stretch = Stretch(CHOICES[choice.strategy](goal), after)
        return self._stretch.start(self._capacity)
