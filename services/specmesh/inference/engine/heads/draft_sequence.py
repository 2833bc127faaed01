"""A draft of heads: the tree that grows below a token of the target's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.engine.heads.engine_heads import EngineHeads, Reading
from specmesh.inference.model import (
    Cancellation,
    ForwardRequest,
    ForwardSize,
    LanguageModel,
    Logits,
)


class DraftSequence:
    """A ``SequenceState`` of heads: a state for each node of a tree that hangs from
    ``token_id``."""

    def __init__(
        self,
        model: LanguageModel,
        heads: EngineHeads,
        state: Any,
        token_id: int,
        text: Any,
        cancellation: Cancellation,
    ) -> None:
        """Begin in ``state``, behind a ``text`` that the ``heads`` hold."""
        self.cancellation = cancellation
        self._model = model
        self._heads = heads
        self._begin = state
        self._token_id = token_id
        self._text = text
        self.num_cached_tokens = self.num_computed_tokens = 0
        self.latest_forward = ForwardSize()
        self._states: list[Any] = []
        """The states after the token that the tree hangs from, and after each node."""

    @property
    def num_rows(self) -> int:
        """The number of nodes that have a state, node 0 included."""
        return len(self._states)

    def unread(self, tree: TokenTree) -> Reading:
        """Return the nodes of ``tree`` without a state, which must all hang from nodes that have
        one; before the first step, the token that the tree will hang from."""
        if not self._states:
            return Reading(self._text, tree, [self._begin], [self._token_id], [0])
        nodes = range(self.num_rows, len(tree) + 1)
        return Reading(
            self._text,
            tree,
            states=[self._states[tree.parents[node - 1]] for node in nodes],
            token_ids=[tree.token_ids[node - 1] for node in nodes],
            depths=[tree.depths[node] for node in nodes],
        )

    def advance(self, states: Sequence[Any]) -> None:
        """Record the ``states`` of the nodes that were ``unread``."""
        self._states += states
        self.num_computed_tokens += len(states)

    def score(self, tree: TokenTree) -> Logits:
        """Return the logits of the new nodes, which must all hang from earlier ones."""
        (logits,) = self._model.forward([ForwardRequest(self, tree)])
        assert logits is not None
        return logits

    def close(self, keep: Sequence[int]) -> None:  # noqa: ARG002
        """Keep nothing of a draft: the next one begins at another hidden state."""
        self._states.clear()
        self._heads.close(self._text)
