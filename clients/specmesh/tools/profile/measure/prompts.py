"""Which of the shipped prompts a profile is made with, and which it is checked with."""

from __future__ import annotations

import random
from collections.abc import Sequence

from specmesh.models import Prompt


def parted(prompts: Sequence[Prompt], seed: int) -> tuple[list[str], list[str]]:
    """Two lists of texts that share no file, each in an order of which any beginning is spread over
    its files. Files are dealt at random, since those with paths alike are alike."""
    rng = random.Random(seed)  # noqa: S311 - a profile must repeat
    paths = sorted({each.path for each in prompts})
    own = set(rng.sample(paths, (len(paths) + 1) // 2))
    halves: tuple[list[str], list[str]] = ([], [])
    for each in rng.sample(prompts, len(prompts)):
        halves[each.path not in own].append(each.text)
    return halves
