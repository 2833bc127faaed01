"""Who says what on the virtual clock: models whose agreement is a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from specmesh.decoding.acceptance import Verdict, verify
from specmesh.decoding.bonus import MAX_BONUS_CANDIDATES
from specmesh.decoding.drafting import TopK, draw_children, highest_entropy
from specmesh.decoding.sampling import Distribution, Sampling
from specmesh.decoding.simulated import SimulatedDrafter, SimulatedTarget, chained
from specmesh.decoding.simulated_pair import SimulatedPair, renamed
from specmesh.decoding.tree import TokenTree
from specmesh.orchestrator.strategies.base import Draft, Verify
from specmesh.orchestrator.strategies.kit.draft_noise import draft_sampling


class Context(NamedTuple):
    """A text so far: the hash of it, and how many tokens it has."""

    state: int
    length: int

    def after(self, tokens: Sequence[int]) -> Context:
        """Once ``tokens`` have followed."""
        state = self.state
        for token in tokens:
            state = chained(state, token)
        return Context(state, self.length + len(tokens))

    def of_nodes(self, tree: TokenTree) -> list[Context]:
        """That of each node of a tree that hangs from it, its own first."""
        contexts = [self]
        for token, parent in zip(tree.token_ids, tree.parents, strict=True):
            contexts.append(contexts[parent].after((token,)))
        return contexts


@dataclass(frozen=True, slots=True)
class DraftedToken:
    """A token that a drafter says, what it was drawn from, and what else it thought of."""

    token: int
    distribution: Distribution | None
    choices: TopK | None


class VirtualModels(Protocol):
    """A target and its drafters."""

    @property
    def num_drafters(self) -> int:
        """How many different ones there are, in the order in which they are preferred."""
        ...

    def begin(self, prompt: Sequence[int]) -> Context:
        """The context that ``prompt`` makes."""
        ...

    def guess(self, context: Context, command: Draft) -> DraftedToken:
        """What the drafter that ``command`` names says next."""
        ...

    def verdict(self, context: Context, command: Verify) -> Verdict:
        """What the target says of the tree, which hangs from ``context``."""
        ...


@dataclass(frozen=True, slots=True)
class CertainModels:
    """Models that say one certain token at every context (see ``decoding/simulated.py``)."""

    target: SimulatedTarget
    drafters: tuple[SimulatedDrafter, ...]

    @property
    def num_drafters(self) -> int:
        """See ``VirtualModels``."""
        return len(self.drafters)

    def begin(self, prompt: Sequence[int]) -> Context:
        """See ``VirtualModels``."""
        return Context(self.target.start, 0).after(prompt)

    def guess(self, context: Context, command: Draft) -> DraftedToken:
        """See ``VirtualModels``; a drafter is as sure of every token as it is often right."""
        drafter = self.drafters[command.drafter]
        first, second = drafter.choices(context.state)
        if not command.num_choices:
            return DraftedToken(first, None, None)
        odds = (drafter.acceptance, (1 - drafter.acceptance) * drafter.runner_up)
        entropy = highest_entropy(odds, self.target.vocab_size)
        return DraftedToken(first, None, TopK((first, second), odds, entropy))

    def verdict(self, context: Context, command: Verify) -> Verdict:
        """See ``VirtualModels``."""
        tree, node, state = command.tree, 0, context.state
        accepted: list[int] = []
        while True:
            token = self.target.token(state)
            child = tree.child_with(node, token)
            if child is None:
                return Verdict(tuple(accepted), token, recovered=bool(tree.children(node)))
            accepted.append(child)
            node, state = child, self.target.after(state, (token,))


class SampledModels:
    """Models that draw (see ``decoding/simulated_pair.py``), by the very rules of the services."""

    num_drafters = 1

    def __init__(self, pair: SimulatedPair, sampling: Sampling) -> None:
        self._target, self._drafter = pair.target_probabilities(), pair.draft_probabilities()
        self._sampling = sampling

    def begin(self, prompt: Sequence[int]) -> Context:
        """See ``VirtualModels``."""
        return Context(0, 0).after(prompt)

    def guess(self, context: Context, command: Draft) -> DraftedToken:
        """See ``VirtualModels``."""
        sampling = draft_sampling(self._sampling, command.task, epoch=1)
        logits = renamed(self._drafter, context.state)
        drawn = draw_children(logits, sampling, context.length, 1, command.num_choices)
        return DraftedToken(drawn.children[0], drawn.distribution, drawn.choices)

    def verdict(self, context: Context, command: Verify) -> Verdict:
        """See ``VirtualModels``."""
        logits = np.stack(
            [renamed(self._target, node.state) for node in context.of_nodes(command.tree)]
        )
        return verify(
            *(command.tree, logits, self._sampling, context.length, command.distributions),
            num_bonus_candidates=MAX_BONUS_CANDIDATES if command.drafting_on else 0,
        )
