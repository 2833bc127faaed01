"""The split of the shipped prompts into those that make a profile and those that check it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from specmesh.models import Prompt


def parted(prompts: Sequence[Prompt], seed: int) -> tuple[list[str], list[str]]:
    """Return two lists of texts that share no file, each ordered so that any beginning is spread
    over its files. Files are assigned at random, because files with similar paths are similar."""
    rng = random.Random(seed)  # noqa: S311 - a profile must repeat
    paths = sorted({each.path for each in prompts})
    own = set(rng.sample(paths, (len(paths) + 1) // 2))
    halves: tuple[list[str], list[str]] = ([], [])
    for each in rng.sample(prompts, len(prompts)):
        halves[each.path not in own].append(each.text)
    return halves
