"""The interface of heads for the engine: they draft from a target's hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.model import Logits, SequenceState


@dataclass(frozen=True, slots=True)
class Reading:
    """One draft's part of a step: tokens to read, none of which follows another.

    They are the last nodes of ``tree``, or, of an empty one, the token that it will hang from.
    ``states`` are those to read them in, and ``depths`` count the tokens of the draft before each.
    ``text`` is what the heads hold of the text before the draft.
    """

    text: Any
    tree: TokenTree
    states: Sequence[Any]
    token_ids: Sequence[int]
    depths: Sequence[int]


class EngineHeads(Protocol):
    """Heads that draft from the target's hidden states: of tensors, or simulated ones.

    A state is what the heads know after a token. Heads that attend to the text hold something of
    each of its tokens besides, from ``open`` to ``close``.
    """

    max_depth: int
    """The depth, in tokens, to which they can draft."""

    def begin(self, hidden: Any) -> Any:
        """Return the state of a draft that begins at ``hidden``, from the target's
        ``hidden_at``."""
        ...

    def num_kept(self, room: int) -> int:
        """Return for how many tokens a draft of up to ``room`` nodes keeps something."""
        ...

    def open(self, sequence: SequenceState, token_id: int, room: int) -> Any:
        """Hold the text of ``sequence``, which is closed, and then ``token_id``, for a draft of up
        to ``room`` nodes below it. Raises ``NoRoom`` or ``TooLarge``."""
        ...

    def step(self, readings: Sequence[Reading]) -> tuple[Logits, Sequence[Any]]:
        """Read the tokens of all ``readings``. Returns the logits after the tokens, ``[tokens,
        vocab]``, and the new states."""
        ...

    def close(self, text: Any) -> None:
        """Let go of a text that ``open`` returned."""
        ...


class KeepsNothing:
    """Heads to whom a state is all of the text."""

    def num_kept(self, room: int) -> int:  # noqa: ARG002
        """Return 0."""
        return 0

    def open(self, sequence: SequenceState, token_id: int, room: int) -> None:
        """Hold nothing."""

    def close(self, text: Any) -> None:
        """Let go of nothing."""


@runtime_checkable
class HasHidden(Protocol):
    """A target's sequence that heads can begin at."""

    def hidden_at(self, node: int) -> Any:
        """Return the hidden state that the token after ``node`` is computed from, for nodes scored
        last. The sequence may be closed."""
        ...
