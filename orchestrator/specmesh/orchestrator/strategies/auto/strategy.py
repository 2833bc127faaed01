"""Auto: the strategy that is fastest for this answer on this mesh, while it runs.

An answer is a sequence of stretches, each with one of the other strategies and the numbers that it
chooses for itself. After a commit, ``choose`` compares what the strategies are expected to yield
with the mesh's costs and the rates at which the drafts of this answer are accepted; a new answer
begins with the rates of all answers before it. To change the strategy, all tasks of the current one
are cancelled, and the other starts after the committed tokens.

Rejection mode: a change follows from committed tokens, latencies, and other answers, never from the
tokens that it throws away. The next stretch's tasks have numbers, and so noise, of their own. This
keeps the rule in ``base.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from specmesh.decoding.predict.acceptance_rate import MeshAcceptance
from specmesh.orchestrator.strategies.auto.choice import ALONE, Choice, choose, expected_rates
from specmesh.orchestrator.strategies.auto.stretch import StrategyStretch
from specmesh.orchestrator.strategies.autoregressive import Autoregressive
from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.orchestrator.strategies.branch_prediction import Exhaustive
from specmesh.orchestrator.strategies.commands import Command, Commit, Finish
from specmesh.orchestrator.strategies.dsi import DSI
from specmesh.orchestrator.strategies.events import Capacity, Event, Failed
from specmesh.orchestrator.strategies.heads import Heads
from specmesh.orchestrator.strategies.heads_and_drafter import HeadsAndDrafter
from specmesh.orchestrator.strategies.speculative import Speculative
from specmesh.orchestrator.strategies.tree import Tree

CHOICES: Final[Mapping[str, type[Strategy]]] = {
    "autoregressive": Autoregressive,
    "speculative": Speculative,
    "dsi": DSI,
    "exhaustive": Exhaustive,
    "tree": Tree,
    "heads": Heads,
    "heads-and-drafter": HeadsAndDrafter,
}
"""The strategies that are chosen among, by their names."""
LEAST_TOKENS: Final = 8
"""Tokens after which the choice is made again: a change costs what was drafted."""
UNSETTLED_TOKENS: Final = 8
"""The first tokens after a change, whose speed does not count: drafts begin anew, and other answers
still change."""
TIMING: Final = Choice(
    ALONE, "the target alone is timed, to compare it with drafts", tentative=True
)


class Auto(Strategy):
    """Runs one stretch after the other. A request's options don't apply: each strategy chooses its
    own numbers."""

    needs_drafter = False
    options = frozenset()

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._acceptance = MeshAcceptance(goal.acceptance)
        """The rates of this answer."""
        self._capacity = Capacity()
        self._lacks_drafter = False
        """A draft has failed, and there is no sign of a working drafter."""
        self._num_tokens = self._num_before = self._chosen_at = 0
        """Number of committed tokens, of those before the stretch, and at the latest choice."""
        self._history = ""
        self._settled: str | None = None
        """The strategy that was chosen last, other than to measure something."""
        self._since: float | None = None
        """The time of the latest commit; None before the first one of a stretch, for which a draft
        may have begun anew."""
        self._choice = Choice(ALONE, "there is nothing to choose by yet")
        self._stretch = self._begun(self._choice, after=0)

    @property
    def explanation(self) -> str:
        """Why the answer has its current strategy, and which it had before."""
        return f"chose {self._choice.strategy}, because {self._choice.reason}{self._history}"

    @property
    def current(self) -> type[Strategy]:
        """The strategy of the current stretch."""
        return CHOICES[self._choice.strategy]

    def start(self, capacity: Capacity) -> Sequence[Command]:
        """Return the first commands of the first strategy."""
        self._capacity = capacity
        self._settled = self._goal.acceptance.chosen
        self._choice = self._choose()
        self._stretch = self._begun(self._choice, after=0)
        return self._stretch.start(capacity)

    def handle(self, event: Event) -> Sequence[Command]:
        """Return what the current strategy does, or how another takes over after its commit."""
        self._note(event)
        commands = self._stretch.handle(event)
        num_new = sum(len(each.token_ids) for each in commands if isinstance(each, Commit))
        self._num_tokens += num_new
        if num_new:
            self._measure(num_new)
        if not num_new or isinstance(commands[-1], Finish) or not self._is_due:
            return commands
        former, choice = self._choice, self._choose()
        if (choice.strategy, choice.lookahead) == (former.strategy, former.lookahead):
            self._choice = choice
            return commands
        return self._change(choice, commands)

    def _measure(self, num_tokens: int) -> None:
        """Record the time of a round that has committed ``num_tokens``."""
        choice, capacity = self._choice, self._capacity
        unsettled = UNSETTLED_TOKENS if self._num_before else 0
        is_settled = self._num_tokens - num_tokens >= self._num_before + unsettled
        counts = choice.strategy == ALONE or (choice.expected and is_settled)
        if self._since is not None and counts:
            self._goal.acceptance.speeds.add(
                *(choice.strategy, num_tokens, self.now - self._since),
                expected=choice.expected,
                load=max(capacity.num_sharing, capacity.num_waiting),
                shares_host=capacity.shares_host,
                now=self.now,
            )
        self._since = self.now

    @property
    def _is_due(self) -> bool:
        """True if the choice is to be made again."""
        if self._choice.tentative or self._goal.acceptance.speeds.times_alone:
            return True
        return self._num_tokens >= self._chosen_at + LEAST_TOKENS

    def _note(self, event: Event) -> None:
        if isinstance(event, Capacity):
            self._capacity = event
            self._lacks_drafter &= event.drafter_s is None
        elif isinstance(event, Failed) and self._stretch.is_drafting(event.task):
            self._lacks_drafter = self._capacity.drafter_s is None

    def _choose(self) -> Choice:
        self._chosen_at, capacity = self._num_tokens, self._capacity
        if self._goal.acceptance.speeds.times_alone:
            return TIMING
        if self._lacks_drafter:
            capacity = replace(capacity, drafters=())
        everyone, shares = self._goal.acceptance, capacity.period_s > 0
        # Answers that share replicas are fastest with the same strategy.
        acceptance, current, forecast = (
            (everyone, everyone.chosen, self._shared_forecast)
            if shares
            else (self._acceptance, self._settled, None)
        )
        choice = choose(
            capacity, acceptance, current, num_tokens=self._num_tokens, forecast=forecast
        )
        # What only measures the mesh has no advantage over others once that is known.
        self._settled = None if choice.tentative else choice.strategy
        if (shares or not self._num_tokens) and choice.lookahead is None and not choice.tentative:
            everyone.chosen = choice.strategy
        return choice

    def _shared_forecast(self, capacity: Capacity, everyone: MeshAcceptance) -> Mapping[str, float]:
        """Return what the strategies are expected to yield, computed once per forward for all
        answers in it: that takes as long as a token takes the orchestrator."""
        return everyone.forecast.at(
            self.now,
            capacity.period_s,
            (capacity.drafters, capacity.heads_depth, capacity.num_verifiers),
            lambda: expected_rates(capacity, everyone),
        )

    def _change(self, choice: Choice, commands: Sequence[Command]) -> list[Command]:
        """Let another strategy take over; ``commands`` are the latest of the current one."""
        num_tokens = self._num_tokens - self._num_before
        self._history = f"; before, {self._choice.strategy} for {num_tokens} tokens"
        self._num_before, self._since = self._num_tokens, None
        ended = self._stretch.end(commands)
        self._choice = choice
        self._stretch = self._begun(choice, after=self._stretch.last_task)
        return [*ended, *self._stretch.start(self._capacity)]

    def _begun(self, choice: Choice, after: int) -> StrategyStretch:
        """Return a stretch for the rest of the answer."""
        goal = Goal(
            self._goal.max_tokens - self._num_tokens,
            self._goal.end_of_text_ids,
            self._goal.stop_token_ids,
            lookahead=choice.lookahead,
            seed=self._goal.seed,
            acceptance=self._acceptance,
        )
        return StrategyStretch(CHOICES[choice.strategy](goal), after)
