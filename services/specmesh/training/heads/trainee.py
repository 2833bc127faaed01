"""The interface of heads in training, of any architecture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor, nn

from specmesh.inference.models.heads.seen import Seen


@dataclass(frozen=True, slots=True)
class HeadsGuess:
    """The guesses of heads, one token deeper than the last ones.

    ``logits`` ``[rows, starts, guessed]`` are those of the tokens that heads guess; the target's
    are at ``[:, first : first + starts]`` along the text.
    """

    logits: Tensor
    first: int


class Trainee(Protocol):
    """Heads and the target that they learn from."""

    guessed: Tensor | None
    """The ids of the tokens that they guess; None for all."""

    name: str
    """Distinguishes their checkpoints from those of other heads for the same target."""

    @property
    def network(self) -> nn.Module:
        """The network to train."""
        ...

    def start(self, token_ids: Tensor) -> None:
        """Set the untrained network's weights by what the target does along ``token_ids`` ``[rows,
        tokens]``."""
        ...

    def look(self, token_ids: Tensor) -> Seen:
        """Run the target along ``token_ids`` ``[rows, tokens]``."""
        ...

    def unroll(self, seen: Seen, depth: int) -> Iterator[HeadsGuess]:
        """Yield the guesses of drafts of ``depth`` tokens from every position of the texts except
        the last ``depth``.

        They read the text's own tokens at every depth, not their own guesses: a draft continues
        only below accepted tokens, and those are the text's.
        """
        ...

    def save(self, folder: Path) -> None:
        """Write the heads into ``folder``."""
        ...
