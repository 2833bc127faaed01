"""Options for the tests of all strategies: drawn from where they are declared."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st

from specmesh.decoding.trees.shape import TreeShape
from specmesh.orchestrator.strategies.options import OPTIONS, Allowed, Between, OneOf, WholeBetween


def examples(allowed: Allowed) -> Sequence[Any]:
    """Some of the values that an option may have: of numbers small ones, but for the highest."""
    match allowed:
        case OneOf(names):
            return sorted(names)
        case WholeBetween(low, high):
            return sorted({min(low + more, high) for more in (0, 1, 2, 4, 7, 11)})
        case Between(low, high):
            return [low + (high - low) * share for share in (0.0, 0.1, 0.5, 0.9, 1.0)]


CALIBRATED_TREES: Sequence[TreeShape] = tuple(
    map(TreeShape, ((1,), (2,), (2, 1), (2, 1, 1), (2, 1, 1, 1), (3, 1, 0, 0, 2), (3, 2, 0, 0, 2)))
)
"""As ``Goal`` has them."""

GIVEN = {name: st.none() | st.sampled_from(examples(each)) for name, each in OPTIONS.items()}
"""By their names, as ``Goal`` takes them; None leaves an option to the strategy."""


def draw_options(rng: random.Random) -> dict[str, Any]:
    """The same from ``rng``, for answers of few tokens: of whole numbers the lowest."""
    return {name: rng.choice([None, *_lowest(each)]) for name, each in OPTIONS.items()}


def _lowest(allowed: Allowed) -> Sequence[Any]:
    return examples(allowed)[:2] if isinstance(allowed, WholeBetween) else examples(allowed)
