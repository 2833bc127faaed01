"""The interface of heads, whatever their architecture."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class DraftHeads(Protocol):
    """Guesses tokens from the target's hidden state at the last committed token but one.

    A draft begins below a token that the target has just chosen. What is known of the text before
    it is the target's hidden state that it was chosen from: the input of the target's output layer,
    ``[hidden]``. Each call to ``step`` goes one token deeper. It takes rows of any mixture of
    drafts, so that the drafts of several calls share it.
    """

    target_digest: str
    """``ModelDescription.weights_digest`` of the target they were trained for."""

    max_depth: int
    """How many tokens deep they can draft."""

    def begin(self, hidden: Tensor) -> Tensor:
        """The states ``[rows, state]`` of drafts that begin after ``hidden`` ``[rows, hidden]``."""
        ...

    def step(self, states: Tensor, token_ids: Tensor, depths: Tensor) -> tuple[Tensor, Tensor]:
        """Read a token in each state: returns logits ``[rows, vocab]`` for the token after it, and
        the states ``[rows, state]`` there.

        ``token_ids`` ``[rows]`` are what was chosen in ``states``, the target's own token first;
        ``depths`` ``[rows]`` are how many tokens of each draft come before: 0 for the target's
        own, below ``max_depth``. A token that the heads never guess has a logit of −inf.
        """
        ...
