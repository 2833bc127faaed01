"""The comparison of divided with undivided forwards, for random trees and contexts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from specmesh.bench.hcmp.divided import crew_of
from specmesh.bench.hcmp.shapes import CONTEXT_TOKENS, VOCAB_SIZE
from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.model import Cancellation, LanguageModel
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.inference.models.units.plans.planner import FixedPlan, Plan

LIMIT = 1e-4
MAX_NODES = 32
TREES_OF_A_CONTEXT = 50


@dataclass(frozen=True, slots=True)
class Exactness:
    """The maximum difference of logits from those of the plain forward, over ``trees`` trees below
    prefixes of up to ``longest`` tokens; NaN if any difference is."""

    trees: int
    longest: int
    difference: float

    @property
    def holds(self) -> bool:
        """Return whether the difference is only rounding."""
        return self.difference < LIMIT


def check(divided: TransformersModel, plain: LanguageModel, num_trees: int) -> Exactness:
    """Compare both on ``num_trees`` trees, some divided as planned, the others at random."""
    rng = np.random.default_rng(0)
    crew = crew_of(divided)
    planned = crew.plan
    longest, difference = 0, 0.0
    for number, (prefix, tree) in enumerate(_trees(rng, num_trees)):
        crew.use(planned if number % 4 == 0 else _random_plan(rng))
        rows = [_score(model, prefix, tree) for model in (divided, plain)]
        difference = larger(difference, rows[0], rows[1])
        longest = max(longest, len(prefix) + max(tree.depths))
    crew.use(planned)
    return Exactness(num_trees, longest, difference)


def larger(difference: float, divided: np.ndarray, plain: np.ndarray) -> float:
    """Return ``difference``, or that of these logits if it is larger; NaN if either is NaN."""
    # Python's max would drop a NaN, which would then pass for no difference.
    return float(np.maximum(difference, np.abs(divided - plain).max()))


def _trees(rng: np.random.Generator, num_trees: int) -> Iterator[tuple[list[int], TokenTree]]:
    prefix: list[int] = []
    for number in range(num_trees):
        size = int(rng.integers(1, MAX_NODES + 1))
        parents = tuple(int(rng.integers(0, node + 1)) for node in range(size))
        tokens = rng.choice(VOCAB_SIZE, size, replace=False)
        tree = TokenTree(tuple(map(int, tokens)), parents)
        if number % TREES_OF_A_CONTEXT == 0:
            length = int(rng.integers(1, CONTEXT_TOKENS - MAX_NODES + 1))
            prefix = rng.integers(0, VOCAB_SIZE, length).tolist()
        # The last one reaches the context's end.
        room = CONTEXT_TOKENS - max(tree.depths) - len(prefix)
        grown = prefix + rng.integers(0, VOCAB_SIZE, room).tolist()
        yield grown if number == num_trees - 1 else prefix, tree


def _random_plan(rng: np.random.Generator) -> Plan:
    share = float(rng.random())
    return FixedPlan((1 - share, share))


def _score(model: LanguageModel, prefix: list[int], tree: TokenTree) -> np.ndarray:
    sequence = model.open(prefix, Cancellation())
    try:
        return sequence.score(tree)
    finally:
        sequence.close(())
