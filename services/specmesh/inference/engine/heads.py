"""A target that also drafts, with heads that start from its own hidden states."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.engine.engine_metrics import record_forward
from specmesh.inference.engine.kv_counts import KvCounts
from specmesh.inference.model import (
    DEFAULT_ROOM_TOKENS,
    Cancellation,
    ForwardRequest,
    ForwardSize,
    LanguageModel,
    Logits,
    SequenceState,
)

Unread = tuple[Any, int, int]
"""The state that a token is read in, the token, and its depth."""

STEP_ROWS = 1024
"""The most tokens that heads read in one step, since each takes a row of logits; one draft may have
more."""


class EngineHeads(Protocol):
    """Heads that draft from the target's hidden states: ``DraftHeads`` of tensors, or simulated
    ones.

    A state is what the heads keep of a token in order to continue after it.
    """

    max_depth: int
    """The depth, in tokens, to which they can draft."""

    def begin(self, hidden: Any) -> Any:
        """Return the state of a draft that begins at ``hidden``, from the target's
        ``hidden_at``."""
        ...

    def step(
        self, states: Sequence[Any], token_ids: Sequence[int], depths: Sequence[int]
    ) -> tuple[Logits, Sequence[Any]]:
        """Read one token in each of ``states``, at ``depths`` (each below ``max_depth``) in its
        draft. Returns the logits after the tokens, ``[len(states), vocab]``, and the new states."""
        ...


@runtime_checkable
class HasHidden(Protocol):
    """A target's sequence that heads can begin at."""

    def hidden_at(self, node: int) -> Any:
        """Return the hidden state that the token after ``node`` is computed from, for nodes scored
        last."""
        ...


class TargetWithHeads:
    """A ``LanguageModel`` whose forward passes are either the target's or steps of its heads.

    While any call drafts, a forward pass is a step for all calls that draft, and calls that need
    the target wait. The wait is short: a step takes a small part of the target's time, and there
    are at most as many steps in a row as a draft is deep, because a new draft begins after a
    forward pass of the target. So drafts don't wait for the target, and calls share its next
    forward pass again.
    """

    def __init__(self, target: LanguageModel, heads: EngineHeads) -> None:
        self._target = target
        self._heads = heads
        self.description = replace(target.description, heads_depth=heads.max_depth)
        self.max_batch = target.max_batch

    @property
    def pool(self) -> KvCounts | None:
        """The target's pool: heads keep no KV."""
        return self._target.pool

    def open(
        self, prefix: Sequence[int], cancellation: Cancellation, room: int = DEFAULT_ROOM_TOKENS
    ) -> SequenceState:
        """Open a sequence of the target."""
        return self._target.open(prefix, cancellation, room)

    def open_draft(self, sequence: SequenceState, node: int, token_id: int) -> DraftSequence:
        """Open a sequence of the heads, whose trees hang from ``token_id``. The target has chosen
        that token after ``node``, one of the nodes of ``sequence`` scored last. Trees must grow by
        one level from call to call. ``sequence`` may be closed meanwhile."""
        assert isinstance(sequence, HasHidden)
        hidden = sequence.hidden_at(node)
        return DraftSequence(self, self._heads, hidden, token_id, sequence.cancellation)

    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]:
        """Run a step of the heads if any request is for them, with None for the other requests;
        else run the target's forward pass."""
        drafting = [
            (index, request.sequence, request.tree)
            for index, request in enumerate(requests)
            if isinstance(request.sequence, DraftSequence)
        ]
        if not drafting:
            return self._target.forward(requests)
        results: list[Logits | None] = [None] * len(requests)
        for (index, _, _), logits in zip(
            drafting, self._step([each[1:] for each in drafting]), strict=False
        ):
            results[index] = logits
        return results

    def find_base(self, base_length: int, digest: bytes) -> PrefixChain | None:
        """Return what the target finds."""
        return self._target.find_base(base_length, digest)

    def _step(self, drafts: Sequence[tuple[DraftSequence, TokenTree]]) -> list[Logits]:
        """Return the logits of the new nodes of the first ``drafts``, as many as fit in one
        step."""
        taken: list[tuple[DraftSequence, list[Unread]]] = []
        num_rows = 0
        for sequence, tree in drafts:
            num_rows += len(tree) + 1 - sequence.num_rows
            if taken and num_rows > STEP_ROWS:
                break
            taken.append((sequence, sequence.unread(tree)))
        unread = [each for _, new in taken for each in new]
        vocab_size = self.description.vocab_size
        if not unread:
            return [np.empty((0, vocab_size), np.float32) for _ in taken]
        began = time.perf_counter()
        states, token_ids, depths = zip(*unread, strict=True)
        logits, after = self._heads.step(states, token_ids, depths)
        record_forward((time.perf_counter() - began) * 1e3, "heads", len(taken), len(unread))
        results, first = [], 0
        for sequence, new in taken:
            sequence.advance(after[first : first + len(new)])
            sequence.latest_forward = ForwardSize(len(taken), len(unread))
            results.append(logits[first : first + len(new)])
            first += len(new)
        return results


class DraftSequence:
    """A ``SequenceState`` of heads: a state for each node of a tree that hangs from ``token_id``.
    Nothing is cached."""

    def __init__(
        self,
        model: TargetWithHeads,
        heads: EngineHeads,
        hidden: Any,
        token_id: int,
        cancellation: Cancellation,
    ) -> None:
        self.cancellation = cancellation
        self._model = model
        self._heads = heads
        self._hidden = hidden
        self._token_id = token_id
        self.num_cached_tokens = self.num_computed_tokens = 0
        self.latest_forward = ForwardSize()
        self._states: list[Any] = []
        """The states after the token that the tree hangs from, and after each node."""

    @property
    def num_rows(self) -> int:
        """The number of nodes that have a state, node 0 included."""
        return len(self._states)

    def unread(self, tree: TokenTree) -> list[Unread]:
        """Return the nodes of ``tree`` without a state, none of which hangs from another."""
        found: list[Unread] = []
        if not self._states:
            found.append((self._heads.begin(self._hidden), self._token_id, 0))
        for node in range(max(1, self.num_rows), len(tree) + 1):
            state = self._states[tree.parents[node - 1]]
            found.append((state, tree.token_ids[node - 1], tree.depth(node)))
        return found

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
