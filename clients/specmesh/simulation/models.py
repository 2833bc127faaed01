"""Models on the virtual clock that agree with a given probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from specmesh.decoding.acceptance import Verdict, verify
from specmesh.decoding.bonus import MAX_BONUS_CANDIDATES
from specmesh.decoding.drafting import Drawn, TopK, draw_children, highest_entropy
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget, chained
from specmesh.decoding.simulated.overlapping import SimulatedPair, renamed
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.strategies.commands import Draft, Verify
from specmesh.orchestrator.strategies.kit.draft_noise import draft_sampling

HEADS = -1
"""The number that stands for the target's heads where commands number drafters."""


class Context(NamedTuple):
    """The tokens so far, as their hash and their number."""

    state: int
    length: int

    def after(self, tokens: Sequence[int]) -> Context:
        """Return the context after ``tokens`` more."""
        state = self.state
        for token in tokens:
            state = chained(state, token)
        return Context(state, self.length + len(tokens))

    def of_nodes(self, tree: TokenTree) -> list[Context]:
        """Return the contexts of a tree's nodes below this one, itself first."""
        contexts = [self]
        for token, parent in zip(tree.token_ids, tree.parents, strict=True):
            contexts.append(contexts[parent].after((token,)))
        return contexts


class VirtualModels(Protocol):
    """A target and its drafters."""

    @property
    def num_drafters(self) -> int:
        """Return the number of different drafters; commands number them, the preferred one
        first."""
        ...

    def begin(self, prompt: Sequence[int]) -> Context:
        """Return the context after ``prompt``."""
        ...

    def guess(self, context: Context, command: Draft, count: int) -> Drawn:
        """Return up to ``count`` next tokens of the drafter that ``command`` names, which may be
        ``HEADS``."""
        ...

    def verdict(self, context: Context, command: Verify) -> Verdict:
        """Return the target's verdict on the tree below ``context``."""
        ...


@dataclass(frozen=True, slots=True)
class CertainModels:
    """Models with one possible token at every context (see ``decoding/simulated/hashed.py``). The
    target's ``heads``, if any, guess as a drafter does."""

    target: SimulatedTarget
    drafters: tuple[SimulatedDrafter, ...]
    heads: SimulatedDrafter | None = None

    @property
    def num_drafters(self) -> int:
        """Return the number of different drafters."""
        return len(self.drafters)

    def begin(self, prompt: Sequence[int]) -> Context:
        """Return the context after ``prompt``."""
        return Context(self.target.start, 0).after(prompt)

    def guess(self, context: Context, command: Draft, count: int) -> Drawn:
        """Return the drafter's two tokens, with the rates at which they are right as
        probabilities."""
        drafter = self.heads if command.drafter == HEADS else self.drafters[command.drafter]
        assert drafter is not None, "the mesh has heads, but the models have none"
        first, second = drafter.choices(context.state)
        if not command.num_choices:
            return Drawn((first, second)[:count], None, None)
        odds = (drafter.acceptance, (1 - drafter.acceptance) * drafter.runner_up)
        entropy = highest_entropy(odds, self.target.vocab_size)
        return Drawn((first, second)[:count], None, TopK((first, second), odds, entropy))

    def verdict(self, context: Context, command: Verify) -> Verdict:
        """Accept the nodes that agree with the target's tokens."""
        tree, node, state = command.tree, 0, context.state
        accepted: list[int] = []
        while True:
            token = self.target.token(state)
            child = tree.child_with(node, token)
            if child is None:
                return Verdict(tuple(accepted), token, recovered=bool(tree.children(node)))
            accepted.append(child)
            node, state = child, self.target.after(state, (token,))


@dataclass(frozen=True, slots=True)
class AcceptanceRates:
    """The rates at which draft tokens are right, independently of each other."""

    drafter: float = 0.8
    runner_up: float = 0.5
    """Rate of second choices where the first is wrong."""
    heads: float | None = None
    """None means that of the drafter."""

    def models(self, seed: int, num_drafters: int = 1) -> CertainModels:
        """Return models with these rates, whose texts depend on ``seed``."""
        target = SimulatedTarget(seed)
        heads = self.drafter if self.heads is None else self.heads
        *drafters, last = (
            SimulatedDrafter(target, rate, self.runner_up, salt)
            for salt, rate in enumerate([*[self.drafter] * num_drafters, heads])
        )
        return CertainModels(target, tuple(drafters), last)


class SampledModels:
    """Models that draw tokens with the services' own code (see
    ``decoding/simulated/overlapping.py``). Heads draw as the drafter does."""

    num_drafters = 1

    def __init__(self, pair: SimulatedPair, sampling: Sampling) -> None:
        self._target, self._drafter = pair.target_probabilities(), pair.draft_probabilities()
        self._sampling = sampling

    def begin(self, prompt: Sequence[int]) -> Context:
        """Return the context after ``prompt``."""
        return Context(0, 0).after(prompt)

    def guess(self, context: Context, command: Draft, count: int) -> Drawn:
        """Draw tokens from the drafter's distribution, without replacement."""
        sampling = draft_sampling(self._sampling, command.task, epoch=1)
        logits = renamed(self._drafter, context.state)
        num_choices = max(command.num_choices, count) if command.num_choices else 0
        return draw_children(logits, sampling, context.length, count, num_choices)

    def verdict(self, context: Context, command: Verify) -> Verdict:
        """Return the verdict of ``verify`` on the target's distributions."""
        logits = np.stack(
            [renamed(self._target, node.state) for node in context.of_nodes(command.tree)]
        )
        return verify(
            *(command.tree, logits, self._sampling, context.length, command.distributions),
            num_bonus_candidates=MAX_BONUS_CANDIDATES if command.drafting_on else 0,
        )
