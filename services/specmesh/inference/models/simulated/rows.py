"""The logits of simulated models: of a row only one or two tokens have others than the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specmesh.inference.model import Logits

_KEPT_LOGITS = 1 << 22
"""The most logits that a model keeps from one forward pass to the next."""

CHOICE_LOGITS = np.array([0, -45, -100], dtype=np.float32)
"""The logits of the first choice, the second, and every other token. At temperature 2 noise lifts
the second over the first with probability 2e-10, and one of 254 others over the second with
3e-10."""


def logits_of(choices: Sequence[tuple[int, ...]], vocab_size: int) -> Logits:
    """Return rows of logits that make ``choices`` the likeliest tokens, the first ones
    likeliest."""
    rows = np.full((len(choices), vocab_size), CHOICE_LOGITS[-1], np.float32)
    _choose(rows, choices)
    return rows


def _choose(rows: Logits, choices: Sequence[tuple[int, ...]]) -> None:
    for row, tokens in enumerate(choices):
        for rank, token in enumerate(tokens):
            rows[row, token] = CHOICE_LOGITS[rank]


class KeptRows:
    """Rows of logits that every forward pass writes anew where they differ from those before: to
    write large ones wholly takes longer than to choose from them."""

    def __init__(self, vocab_size: int) -> None:
        self._most = max(1, _KEPT_LOGITS // vocab_size)
        self._rows = logits_of([], vocab_size)
        self._written: Sequence[tuple[int, ...]] = ()

    def write(self, choices: Sequence[tuple[int, ...]]) -> Logits:
        """Return the same as ``logits_of``."""
        if len(choices) > len(self._rows):
            rows = logits_of(choices, self._rows.shape[1])
            if len(choices) <= self._most:
                self._rows, self._written = rows, choices
            return rows
        for row, tokens in enumerate(self._written):
            self._rows[row, list(tokens)] = CHOICE_LOGITS[-1]
        self._written = choices
        rows = self._rows[: len(choices)]
        _choose(rows, choices)
        return rows
