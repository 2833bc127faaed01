"""Runs one strategy in memory: dice decide which task goes on next, and what breaks."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.drafting import Drawn, TopK
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.best_chain import BestChain
from specmesh.decoding.trees.growth import Guess, is_last, next_level
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
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
from specmesh.orchestrator.strategies.events import (
    Assessed,
    Capacity,
    Drafted,
    Event,
    Failed,
    Released,
    Verified,
)

HEADS = 1
"""The drafter that speaks for the target's heads."""

Target = Callable[[Sequence[int]], int]
Keeps = Callable[[TopK], bool]


class Models(Protocol):
    """Who says what after the answer's tokens so far."""

    def guess(
        self,
        task: int,
        epoch: int,
        drafter: int,
        tokens: Sequence[int],
        num_choices: int,
        count: int,
    ) -> Drawn:
        """Up to ``count`` tokens."""
        ...

    def verdict(self, tokens: Sequence[int], command: Verify) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class Chances:
    """Of what the dice do to a mesh."""

    short_draft: float = 0.0
    broken_draft: float = 0.0
    replay: float = 0.0
    change: float = 0.0
    """Of the mesh's capacity, at every step."""
    quick_draft: float = 0.0
    """Of a draft that goes on before any verification does."""
    broken_assessment: float = 0.0
    """Before it is answered, or after it."""
    broken_check: float = 0.0
    """Of a verification; an answer that is given up for that is resumed."""
    resumption: float = 0.0
    """On another orchestrator, at every step."""
    chains_alone: float = 0.0
    """Of a replica that is sent the best chain of a tree."""


class World:
    """Every event of a task may come after any event of another."""

    def __init__(
        self,
        strategy: str,
        goal: Goal,
        models: Models,
        rng: random.Random,
        capacity: Capacity,
        chances: Chances = Chances(),
        keeps: Keeps = lambda choices: False,
    ) -> None:
        self._keeps = keeps
        self.commits: list[Commit] = []
        self._make = STRATEGIES[strategy]
        self._goal = goal
        self._strategy = self._make(goal)
        self._epoch = 1
        self._models = models
        self._dice = rng
        self._capacity = capacity
        self._drafters = capacity.drafters
        self._chances = chances
        self._text: list[int] = []
        self._pending: dict[int, list[Event]] = {}
        self._verifying: set[int] = set()
        self._past: list[Event] = []
        self._given: set[int] = set()
        self._end: StopReason | None = None
        self._random = False
        """Whether tokens are accepted by chance."""

    @property
    def committed(self) -> list[int]:
        return self._text

    def run(self) -> StopReason:
        self._perform(self._strategy.start(self._capacity))
        while self._end is None:
            if self._dice.random() < self._chances.resumption:
                self._resume()
            elif self._past and self._dice.random() < self._chances.replay:
                assert self._strategy.handle(self._dice.choice(self._past)) == []
            elif self._dice.random() < self._chances.change:
                self._perform(self._strategy.handle(self._change()))
            else:
                self._perform(self._strategy.handle(self._next()))
        return self._end

    def _resume(self) -> None:
        """Another orchestrator knows what is committed, and numbers tasks from 1 again."""
        self._pending, self._past = {}, []
        self._verifying, self._given = set(), set()
        self._epoch += 1
        rest = self._goal.max_tokens - len(self._text)
        self._strategy = self._make(replace(self._goal, max_tokens=rest))
        self._perform(self._strategy.start(self._capacity))

    def _next(self) -> Event:
        tasks = sorted(self._pending)
        if self._dice.random() < self._chances.quick_draft:
            tasks = [task for task in tasks if task not in self._verifying][:1] or tasks
        task = self._dice.choice(tasks)
        event = self._pending[task].pop(0)
        if not self._pending[task]:
            del self._pending[task]
            self._verifying.discard(task)
            self._past.append(event)
        return event

    def _named(self, command: Draft) -> Draft:
        """``command`` to one of all drafters, by its name."""
        name = self._capacity.drafters[command.drafter]
        assert isinstance(name, int)
        return replace(command, drafter=name)

    def _drafters_left(self) -> tuple[str | int, ...]:
        """Some of them come and go; one is always there."""
        left = [name for name in self._drafters if self._dice.random() < 0.8]
        return tuple(left or self._drafters[:1])

    def _change(self) -> Capacity:
        latencies = [None, 0.001, 0.01, 0.1]
        capacity = Capacity(
            num_verifiers=self._dice.randint(0, 5),
            drafters=self._drafters_left(),
            target_s=self._dice.choice(latencies),
            drafter_s=self._dice.choice(latencies),
        )
        self._capacity = replace(
            capacity, heads_s=capacity.drafter_s, heads_depth=self._dice.choice([0, 3])
        )
        return self._capacity

    def _perform(self, commands: Sequence[Command]) -> None:
        sent = False
        for number, command in enumerate(commands, start=1):
            match command:
                case Draft() | Verify():
                    sent = True
                    assert command.task not in self._given
                    self._given.add(command.task)
                    tokens = [*self._text, *command.path]
                    if isinstance(command, Draft):
                        self._pending[command.task] = self._draft(self._named(command), tokens)
                    else:
                        self._check_parallelism(command)
                        self._pending[command.task] = self._verify(command, tokens)
                case Assess():
                    sent = True
                    assert command.task not in self._given
                    self._given.add(command.task)
                    self._pending[command.task] = self._assess(command)
                case Cancel(task=task):
                    assert not sent, "what is cancelled must make room for what is sent"
                    self._verifying.discard(task)
                    self._past += self._pending.pop(task)  # KeyError: it was not under way
                case Commit():
                    assert command.token_ids
                    self.commits.append(command)
                    self._text += command.token_ids
                case Finish(reason=reason):
                    assert number == len(commands)
                    self._end = reason
                case GiveUp():
                    assert self._chances.broken_check, "no verification has failed"
                    self._resume()
                    return

    def _verify(self, command: Verify, tokens: list[int]) -> list[Event]:
        """The verdict, and as many further tokens as there is room for."""
        assert not command.num_further or not (command.tree.token_ids or command.next_draft)
        events: list[Event] = []
        for left in range(self._dice.randint(0, command.num_further), -1, -1):
            if self._dice.random() < self._chances.broken_check:
                return [*events, Failed(command.task)]
            verdict, tried = self._verdict(tokens, command)
            accepted = command.tree.tokens_on(verdict.accepted_nodes)
            tokens = [*tokens, *accepted, verdict.next_token]
            drafted = self._next_draft(command, tokens)
            events.append(Verified(command.task, verdict, drafted, tried, more=left > 0))
        return events

    def _verdict(
        self, tokens: list[int], command: Verify
    ) -> tuple[Verdict, tuple[int, ...] | None]:
        """With the nodes that were tried, if the replica takes chains alone."""
        chances = self._chances
        if not chances.chains_alone or self._dice.random() >= chances.chains_alone:
            return self._models.verdict(tokens, command), None
        chain = BestChain.of(command.tree, command.distributions)
        sent = replace(command, tree=chain.tree, distributions=chain.distributions)
        return chain.in_tree(self._models.verdict(tokens, sent)), chain.nodes

    def _next_draft(self, command: Verify, tokens: list[int]) -> Drafted | None:
        """What heads draft, as any drafter does; none where they break."""
        asked = command.next_draft
        if asked is None:
            return None
        draft = Draft(
            *(command.task, (), asked.depth),
            levels_per_message=asked.depth,
            num_choices=asked.num_choices,
            drafter=HEADS,
            stop=asked.stop,
            growth=asked.growth,
        )
        (event,) = self._draft(draft, tokens)
        return event if isinstance(event, Drafted) else None

    def _check_parallelism(self, command: Verify) -> None:
        """Only what tells the next token may be sent while every replica is at work.

        That happens where a replica has gone, or where in rejection mode a verdict that
        came early turns out to be of no use.
        """
        if len(self._verifying) >= self._capacity.num_verifiers:
            assert command.path == ()
            assert self._chances.change or self._chances.broken_check or self._random
        self._verifying.add(command.task)

    def _assess(self, command: Assess) -> list[Event]:
        keeps = tuple(map(self._keeps, command.positions))
        events: list[Event] = [Assessed(command.task, keeps)]
        if not all(keeps):
            events.append(Released(command.task))
        if self._dice.random() < self._chances.broken_assessment:
            cut = self._dice.randrange(len(events))
            return [*events[:cut], Failed(command.task)]
        return events

    def _draft(self, command: Draft, tokens: list[int]) -> list[Event]:
        """Messages as asked for; the draft may end or break at any level."""
        assert command.depth >= 1
        assert command.from_nodes
        paths = [tokens]
        for token, parent in zip(command.tree.token_ids, command.tree.parents, strict=True):
            paths.append([*paths[parent], token])
        tips, events = [(node, 1.0) for node in command.from_nodes], []
        places = dict.fromkeys(command.from_nodes, 0)  # in a fixed shape
        nodes: list[tuple[int, int]] = []
        distributions: dict[int, Distribution] = {}
        choices: dict[int, TopK] = {}
        for level in range(1, command.depth + 1):
            if self._dice.random() < self._chances.broken_draft:
                return [*events, Failed(command.task)]
            num_nodes, added = len(paths) - 1 - len(command.tree), []
            counts = [_num_drawn(command, num_nodes, places[tip]) for tip, _ in tips]
            guesses = [
                Guess(chance, self._guess(command, paths[tip], count))
                for (tip, chance), count in zip(tips, counts, strict=True)
            ]
            shaped = next_level(guesses, command.stop, command.growth, num_nodes)
            for (tip, _), guess, children in zip(tips, guesses, shaped, strict=True):
                if children.token_ids and guess.drawn.distribution is not None:
                    self._random = True
                    distributions[tip] = guess.drawn.distribution
                if children.token_ids and guess.drawn.choices is not None:
                    choices[tip] = guess.drawn.choices
                for rank, token in enumerate(children.token_ids):
                    nodes.append((token, tip))
                    paths.append([*paths[tip], token])
                    added.append((len(paths) - 1, children.chances[rank]))
                    if command.shape is not None:
                        places[len(paths) - 1] = command.shape.children(places[tip])[rank]
                    else:
                        places[len(paths) - 1] = 0
            tips = [(node, chance) for node, chance in added if _goes_on(command, places[node])]
            short = self._dice.random() < self._chances.short_draft
            num_nodes = len(paths) - 1 - len(command.tree)
            stopped = not tips or is_last(shaped, command.stop, command.growth, num_nodes)
            last = short or stopped or level == command.depth
            if last or level % command.levels_per_message == 0:
                events.append(_drafted(command.task, nodes, distributions, choices, last))
                nodes, distributions, choices = [], {}, {}
            if last:
                break
        return events

    def _guess(self, command: Draft, tokens: Sequence[int], count: int) -> Drawn:
        return self._models.guess(
            *(command.task, self._epoch, command.drafter, tokens, command.num_choices, count)
        )


def _num_drawn(command: Draft, num_nodes: int, place: int) -> int:
    if command.shape is not None:
        return len(command.shape.children(place))
    return command.growth.max_nodes - num_nodes if command.growth else 1


def _goes_on(command: Draft, place: int) -> bool:
    return command.shape is None or len(command.shape.children(place)) > 0


def _drafted(
    task: int,
    nodes: Sequence[tuple[int, int]],
    distributions: Mapping[int, Distribution],
    choices: Mapping[int, TopK],
    last: bool,
) -> Drafted:
    tokens, parents = (tuple(each[part] for each in nodes) for part in range(2))
    return Drafted(task, tokens, parents, distributions, last, choices)


def follow(tree: TokenTree, tokens: Sequence[int], target: Target) -> Verdict:
    """The verdict of a target that says one certain token after any ``tokens``."""
    accepted: list[int] = []
    node, tokens = 0, list(tokens)
    while True:
        token = target(tokens)
        child = tree.child_with(node, token)
        if child is None:
            return Verdict(tuple(accepted), token, recovered=bool(tree.children(node)))
        accepted.append(child)
        tokens.append(token)
        node = child
