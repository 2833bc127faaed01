"""The tokens with the highest scores in many rows of logits: a function that several threads run at
once. Each takes a row after the other until there is none left."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from specmesh.decoding.compiled.intrinsics import floats_at, take_number
from specmesh.decoding.compiled.race_kernel import (
    NUM_GROUPS,
    UNSURE,
    find_groups,
    find_winner,
    holds_nan,
    inlined,
)
from specmesh.decoding.compiled.table import (
    ADDRESS,
    KEY,
    NUM_HEAD_FIELDS,
    NUM_ROW_FIELDS,
    NUM_ROWS,
    SCALE,
    VOCAB_SIZE,
)
from specmesh.decoding.noise import BLOCK_STRIDE, TILE_IDS


@inlined
def _find_likeliest(row: NDArray[np.float32]) -> int:
    """Return the token with the highest logit, the lowest id on ties, or ``UNSURE``."""
    groups = np.empty((NUM_GROUPS, BLOCK_STRIDE), np.float32)
    sums, maxima = np.zeros(BLOCK_STRIDE, np.float32), np.empty(BLOCK_STRIDE, np.float32)
    for start in range(0, row.size, TILE_IDS):
        find_groups(row, start, groups, sums)
        if start == 0:
            maxima[:] = groups[0]
        for group in range(NUM_GROUPS):
            for column in range(BLOCK_STRIDE):
                maxima[column] = max(maxima[column], groups[group, column])
    highest, likeliest = np.float32(-np.inf), row.size
    for column in range(BLOCK_STRIDE):
        highest = max(highest, maxima[column])
    for column in range(BLOCK_STRIDE):
        if maxima[column] == highest:
            for token in range(column, likeliest, BLOCK_STRIDE):
                if row[token] == highest:
                    likeliest = token
                    break
    return likeliest if np.isfinite(highest) and not holds_nan(sums) else UNSURE


def find_tokens(table: Any) -> None:
    """Find the tokens of the rows in ``table``, a pointer to int64, that no other thread takes."""
    num_rows, vocab_size = table[NUM_ROWS], table[VOCAB_SIZE]
    while True:
        number = take_number(table)
        if number >= num_rows:
            return
        at = NUM_HEAD_FIELDS + NUM_ROW_FIELDS * number
        logits = carray(floats_at(table[at + ADDRESS]), (vocab_size,))
        scale = np.int64(table[at + SCALE]).view(np.float64)
        if scale:
            token = find_winner(logits, np.uint64(table[at + KEY]), scale)
        else:
            token = _find_likeliest(logits)
        table[at + ADDRESS] = token
