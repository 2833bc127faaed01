"""A target that repeats its answer from a trace, and a drafter (or heads in its place) that repeats
its guesses."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.drafting import Drawn, TopK, highest_entropy
from specmesh.decoding.simulated.hashed import chained
from specmesh.orchestrator.strategies.commands import Draft, Verify
from specmesh.simulation.models import Context
from specmesh.simulation.replay.recorded import RecordedGuess

RIGHT, WRONG, OTHER_WRONG = range(3)
"""Tokens. Only whether a guess is right matters, not which tokens the answer has."""
_VOCAB_SIZE = 256


class ReplayedModels:
    """The models of one answer of ``num_tokens`` tokens.

    Where nothing was drafted, and so the trace has no guess, one is drawn with ``seed`` at the
    rates of the others.
    """

    num_drafters = 1

    def __init__(self, num_tokens: int, guesses: Mapping[int, RecordedGuess], seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311 - a simulation must repeat
        self._first = _rate([guess.first for guess in guesses.values()])
        self._other = _rate([guess.other for guess in guesses.values() if not guess.first])
        self._guesses: dict[int, RecordedGuess] = {}
        """Guesses by the state of the context, for the answer's own contexts only."""
        state = 0
        for position in range(num_tokens):
            drawn = RecordedGuess(rng.random() < self._first, rng.random() < self._other)
            self._guesses[state] = guesses.get(position, drawn)
            state = chained(state, RIGHT)

    def begin(self, prompt: Sequence[int]) -> Context:  # noqa: ARG002 - any prompt is the same
        """Return the context before the answer."""
        return Context(0, 0)

    def guess(self, context: Context, command: Draft, count: int) -> Drawn:
        """Return what the drafter, or heads in its place, proposed after ``context``; off the
        answer's path, wrong tokens."""
        guess = self._guesses.get(context.state, RecordedGuess(first=False, other=False))
        first = RIGHT if guess.first else WRONG
        second = RIGHT if guess.other and not guess.first else OTHER_WRONG
        children = (first, second)[:count]
        if not command.num_choices:
            return Drawn(children, None, None)
        odds = (self._first, (1 - self._first) * self._other)
        entropy = highest_entropy(odds, _VOCAB_SIZE)
        return Drawn(children, None, TopK((first, second), odds, entropy))

    def verdict(self, context: Context, command: Verify) -> Verdict:  # noqa: ARG002 - as anywhere
        """Accept the right tokens."""
        tree, node = command.tree, 0
        accepted: list[int] = []
        while (child := tree.child_with(node, RIGHT)) is not None:
            accepted.append(child)
            node = child
        return Verdict(tuple(accepted), RIGHT, recovered=bool(tree.children(node)))


def _rate(outcomes: Sequence[bool]) -> float:
    """Return the share that is true, by Laplace's rule of succession for few or none."""
    return (sum(outcomes) + 1) / (len(outcomes) + 2)
