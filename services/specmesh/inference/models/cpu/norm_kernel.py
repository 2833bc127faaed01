"""RMS norms in float32, compiled by numba (Zhang and Sennrich 2019, eq. 4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from specmesh.decoding.compiled.intrinsics import floats_at, take_number

FASTMATH = frozenset({"reassoc", "contract"})
"""Sums may be taken in another order, so that they are taken in vectors."""

NUM_TAKEN, NUM_FEATURES, WEIGHTS, EPS = range(4)
"""The fields of the table that are a norm's: the units that threads have taken; the features; the
address of a weight for each; and the bits of what is added to the mean square, a float64."""
NUM_UNITS, INPUTS, INPUT_STRIDE, OUTPUTS, NUM_ROWS, NUM_FIELDS = range(4, 10)
"""The units into which the rows are divided; the address of the rows, and the bytes between two;
that of the result, whose rows are contiguous; the rows; and the number of fields."""


def normalize(table: Any) -> None:
    """Normalise the units of rows in ``table``, a pointer to int64, that no other thread takes."""
    num_features = table[NUM_FEATURES]
    weights = floats_at(table[WEIGHTS])
    eps = np.float32(np.int64(table[EPS]).view(np.float64))
    while True:
        unit = take_number(table)
        if unit >= table[NUM_UNITS]:
            return
        begin = table[NUM_ROWS] * unit // table[NUM_UNITS]
        for row in range(begin, table[NUM_ROWS] * (unit + 1) // table[NUM_UNITS]):
            inputs = floats_at(table[INPUTS] + row * table[INPUT_STRIDE])
            outputs = floats_at(table[OUTPUTS] + row * num_features * 4)
            total = np.float32(0)
            for feature in range(num_features):
                total += inputs[feature] * inputs[feature]
            factor = np.float32(1) / np.sqrt(total / np.float32(num_features) + eps)
            for feature in range(num_features):
                outputs[feature] = weights[feature] * (inputs[feature] * factor)
