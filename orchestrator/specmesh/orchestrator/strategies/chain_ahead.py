"""A drafter's chain that runs ahead of the current verification."""

from __future__ import annotations

from collections.abc import Sequence

from specmesh.decoding.predict.acceptance_rate import AcceptanceRate
from specmesh.decoding.trees.merge import DrawnTree
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.strategies.commands import TaskId
from specmesh.orchestrator.strategies.events import Drafted
from specmesh.orchestrator.strategies.kit.draft_chain import DraftChain


def trials_of(drafted: Sequence[int], said: Sequence[int]) -> list[bool]:
    """Return for each token of a chain whether the target has ``said`` it, up to the first that it
    has not."""
    agrees = [own == other for own, other in zip(drafted, said, strict=False)]
    return agrees[: agrees.index(False) + 1] if False in agrees else agrees


class ChainAhead:
    """A drafter's guess at the tokens after the committed ones. It stands as long as it agrees with
    the tokens that are committed next and is not behind them."""

    def __init__(self, acceptance: AcceptanceRate) -> None:
        self.task: TaskId | None = None
        """The current draft, if any."""
        self.acceptance = acceptance
        """The rate at which the target agrees with the drafter's tokens."""
        self._tokens = DraftChain()

    @property
    def path(self) -> tuple[int, ...]:
        """All of its tokens."""
        return tuple(self._tokens.tokens)

    def start_over(self) -> None:
        """Start anew after the committed tokens, without a draft under way."""
        self.task, self._tokens = None, DraftChain()

    def extend(self, event: Drafted) -> None:
        """Append the drafted tokens."""
        for token, node in zip(event.token_ids, event.parents, strict=True):
            self._tokens.tokens.append(token)
            self._tokens.choices.append(None)
            self._tokens.distributions.append(event.distributions.get(node))
        if event.last:
            self.task = None

    def advance(self, said: Sequence[int]) -> bool:
        """Learn from the tokens that the target has ``said`` and drop them from the chain; return
        whether the chain still stands."""
        trials = trials_of(self.path, said)
        num_equal = sum(trials)
        self.acceptance.learn(trials)
        self._tokens = self._tokens.after(len(said))
        return num_equal == len(said)

    def first(self, count: int) -> DrawnTree:
        """Return its first ``count`` tokens."""
        chain = self._tokens.first(count)
        return DrawnTree(TokenTree.chain(chain.tokens), chain.drawn_from)
