"""Any strategy, any schedule, any faults: the target's own answer, exactly once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.closed_forms import expected_tokens
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import (
    Cancel,
    Command,
    Commit,
    Draft,
    Drafted,
    Event,
    Failed,
    Finish,
    FinishReason,
    GiveUp,
    Goal,
    Verified,
    Verify,
)

VOCAB_SIZE = 50
Target = Callable[[Sequence[int]], int]


def hashed_target(seed: int) -> Target:
    return lambda prefix: random.Random(f"{seed} {prefix}").randrange(VOCAB_SIZE)


class World:
    """Runs one strategy in memory; decides by dice which task goes on next, and how."""

    def __init__(self, goal: Goal, strategy: str, seed: int, agreement: float) -> None:
        self.target = hashed_target(seed)
        self.commits: list[Commit] = []
        self.failure_rate = self.replay_rate = 0.0
        self._strategy = STRATEGIES[strategy](goal)
        self._dice = random.Random(seed)
        self._agreement = agreement
        self._pending: dict[int, list[Event]] = {}
        self._past: list[Event] = []
        self._tasks: set[int] = set()
        self._end: FinishReason | None = None

    @property
    def committed(self) -> list[int]:
        return [token for commit in self.commits for token in commit.token_ids]

    def run(self) -> FinishReason:
        self._perform(self._strategy.start())
        while self._end is None:
            if self._past and self._dice.random() < self.replay_rate:
                late = self._dice.choice(self._past)
                assert self._strategy.handle(late) == []
                continue
            task = self._dice.choice(sorted(self._pending))
            event = self._pending[task].pop(0)
            if not self._pending[task]:
                del self._pending[task]
            commands = self._strategy.handle(event)
            if not self._pending.get(task):
                self._past.append(event)
            self._perform(commands)
        return self._end

    def _perform(self, commands: Sequence[Command]) -> None:
        for number, command in enumerate(commands, start=1):
            match command:
                case Draft() | Verify():
                    assert command.task not in self._tasks
                    self._tasks.add(command.task)
                    prefix = [*self.committed, *command.path]
                    act = self._draft if isinstance(command, Draft) else self._verify
                    self._pending[command.task] = act(command, prefix)
                case Cancel(task=task):
                    self._pending.pop(task, None)
                case Commit():
                    assert command.token_ids
                    self.commits.append(command)
                case Finish(reason=reason):
                    assert number == len(commands)
                    self._end = reason
                case GiveUp():
                    raise AssertionError("no verification has failed")

    def _draft(self, command: Draft, prefix: list[int]) -> list[Event]:
        """Messages of one level each; a failure may come at any place."""
        assert command.depth >= 1
        events: list[Event] = []
        for parent in range(command.depth):
            if self._dice.random() < self.failure_rate:
                return [*events, Failed(command.task)]
            token = self.target(prefix)
            if self._dice.random() >= self._agreement:
                token = (token + 1) % VOCAB_SIZE
            prefix.append(token)
            last = parent == command.depth - 1 or self._dice.random() < self.failure_rate
            events.append(Drafted(command.task, (token,), (parent,), {}, last))
            if last:
                break
        return events

    def _verify(self, command: Verify, prefix: list[int]) -> list[Event]:
        node, accepted = 0, []
        while child := command.tree.child_with(node, self.target(prefix)):
            prefix.append(self.target(prefix))
            accepted.append(node := child)
        recovered = bool(command.tree.children(node))
        verdict = Verdict(tuple(accepted), self.target(prefix), recovered)
        return [Verified(command.task, verdict)]


def target_only(target: Target, goal: Goal) -> tuple[list[int], FinishReason]:
    tokens: list[int] = []
    while len(tokens) < goal.max_tokens:
        tokens.append(target(tokens))
        if tokens[-1] in goal.end_of_text_ids:
            return tokens, FinishReason.END_OF_TEXT
        if tokens[-1] in goal.stop_token_ids:
            return tokens, FinishReason.STOP
    return tokens, FinishReason.LENGTH


GOALS = st.builds(
    Goal,
    max_tokens=st.integers(1, 40),
    end_of_text_ids=st.sampled_from([frozenset(), frozenset({3})]),
    stop_token_ids=st.sampled_from([frozenset(), frozenset({5, 6})]),
    lookahead=st.integers(1, 8),
)


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=150, deadline=None)
@given(
    goal=GOALS,
    seed=st.integers(0, 2**32),
    agreement=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    failure_rate=st.sampled_from([0.0, 0.2, 1.0]),
    replay_rate=st.sampled_from([0.0, 0.5]),
)
def test_every_strategy_says_what_the_target_alone_would(
    strategy, goal, seed, agreement, failure_rate, replay_rate
):
    world = World(goal, strategy, seed, agreement)
    world.failure_rate, world.replay_rate = failure_rate, replay_rate
    reason = world.run()
    assert (world.committed, reason) == target_only(world.target, goal)


@pytest.mark.parametrize(("alpha", "gamma"), [(0.0, 4), (0.5, 1), (0.7, 4), (0.9, 8), (1.0, 5)])
def test_tokens_a_round_match_the_closed_form(alpha, gamma):
    """Leviathan et al. 2023, Equation 1, for independent acceptance."""
    world = World(Goal(max_tokens=4_000, lookahead=gamma), "speculative", 7, alpha)
    # A hash of the whole text would cost the square of its length.
    world.target = lambda prefix: len(prefix) % VOCAB_SIZE
    world.run()
    # The last rounds are cut by max_tokens.
    sizes = [len(commit.token_ids) for commit in world.commits[: -gamma - 1]]
    # Five standard errors of a mean of values in [1, gamma + 1].
    bound = 5 * (gamma / 2) / len(sizes) ** 0.5
    assert fmean(sizes) == pytest.approx(expected_tokens(alpha, gamma), abs=bound)
