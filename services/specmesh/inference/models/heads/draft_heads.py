"""The interface of heads of any architecture."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class DraftHeads(Protocol):
    """Heads that guess tokens from the target's hidden state at the second-to-last committed token.

    A draft begins below a token that the target has just chosen. The heads know the text before it
    by the target's hidden state that the token was chosen from: the input of the target's output
    layer, ``[hidden]``. Each call of ``step`` goes one token deeper. Its rows may come from
    different drafts, so that the drafts of several calls share a step.
    """

    target_digest: str
    """``ModelDescription.weights_digest`` of the target they were trained for."""

    max_depth: int
    """The depth, in tokens, to which they can draft."""

    def begin(self, hidden: Tensor) -> Tensor:
        """Return the states ``[rows, state]`` of drafts that begin after ``hidden`` ``[rows,
        hidden]``."""
        ...

    def step(self, states: Tensor, token_ids: Tensor, depths: Tensor) -> tuple[Tensor, Tensor]:
        """Read one token in each state. Returns logits ``[rows, vocab]`` for the next token, and
        the new states ``[rows, state]``.

        ``token_ids`` ``[rows]`` are the tokens chosen in ``states``, the target's own token first.
        ``depths`` ``[rows]`` are the numbers of tokens before them in their drafts: 0 for the
        target's own, and below ``max_depth``. A token that the heads never guess has a logit of
        −inf.
        """
        ...
