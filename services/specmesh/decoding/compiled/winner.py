"""The way to the compiled search for the winner of a race, which not every process needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_find: Callable[..., int] | None = None


def prepare() -> None:
    """Have winners found by compiled code from now on, for processes that choose from the logits of
    a model.

    Takes 0.3 s, and two more where no earlier process has left the code on the disk.
    """
    global _find  # noqa: PLW0603 - code is compiled once for a process
    if _find is None:
        from specmesh.decoding.compiled import race_kernel

        _find = race_kernel.find_winner


def find_winner(logits: NDArray[np.floating[Any]], temperature: float, key: int) -> int | None:
    """Return the token with the highest logit / ``temperature`` + Gumbel noise of the stream with
    this ``key``. None if it is for numpy to say: compiled code is not prepared or is not for such
    logits, or which token it is, if any, is a matter of rounding."""
    if _find is None or logits.dtype != np.float32 or not logits.flags.carray:
        return None
    token = _find(logits, np.uint64(key), 1 / temperature)
    return None if token < 0 else token
