"""A draft on the virtual clock, by a drafter or by the target's heads."""

from __future__ import annotations

from specmesh.decoding.drafting import Drawn, TopK
from specmesh.decoding.sampling import Distribution
from specmesh.decoding.trees.growth import Children, Guess, is_last, next_level
from specmesh.orchestrator.strategies.commands import Draft
from specmesh.orchestrator.strategies.events import Drafted
from specmesh.simulation.models import Context, VirtualModels


class DraftedLevels:
    """A draft that grows level by level."""

    def __init__(self, models: VirtualModels, command: Draft, context: Context) -> None:
        self.ended = False
        """True if nothing is left to draft, or going on isn't worthwhile."""
        self.depth = command.depth
        self.context_length = context.length
        self._models = models
        self._command = command
        contexts = context.of_nodes(command.tree)
        self._tips = [(node, contexts[node], 1.0) for node in command.from_nodes]
        """Nodes to draft from: number, context, and probability that the whole path to it is
        accepted."""
        self._num_nodes = 0
        """Number of nodes drafted so far."""
        self.num_levels = 0
        """Number of levels with nodes since the last message."""
        self._begin_message()

    def _begin_message(self) -> None:
        self.num_levels = 0
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._distributions: dict[int, Distribution] = {}
        self._choices: dict[int, TopK] = {}

    @property
    def width(self) -> int:
        """Return the number of tokens that the next level is drafted from."""
        return len(self._tips)

    def grow(self) -> None:
        """Draft one more level."""
        growth, stop = self._command.growth, self._command.stop
        count = growth.max_nodes - self._num_nodes if growth else 1
        drawn = [self._models.guess(context, self._command, count) for _, context, _ in self._tips]
        guesses = [Guess(tip[2], each) for tip, each in zip(self._tips, drawn, strict=True)]
        level = next_level(guesses, stop, growth, self._num_nodes)
        tips, self._tips, num_before = self._tips, [], self._num_nodes
        for (node, context, _), each, children in zip(tips, drawn, level, strict=True):
            self._add(node, context, each, children)
        self.num_levels += self._num_nodes > num_before
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
