"""The logits of simulated models, which are written anew for each forward pass."""

import random

import numpy as np
import pytest

from specmesh.inference.models.simulated.rows import KeptRows, logits_of


@pytest.mark.parametrize("size", [8, 1 << 20])  # of the larger four rows are kept
def test_kept_rows_are_those_that_would_be_written_wholly(size):
    rng, kept = random.Random(size), KeptRows(size)
    for _ in range(30):
        choices = [tuple(rng.sample(range(8), rng.randint(1, 2))) for _ in range(rng.randint(1, 6))]
        assert np.array_equal(kept.write(choices), logits_of(choices, size))
