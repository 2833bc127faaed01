"""Random draws of strategies that stay stable as the registry grows."""

from __future__ import annotations

from random import Random

from specmesh.orchestrator.strategies import STRATEGIES


def draw_strategy(random: Random, *, with_heads: bool = False) -> str:
    """Draw the name of a strategy uniformly; strategies that need heads only ``with_heads``.

    It uses rendezvous hashing (Thaler & Ravishankar 1998): a new strategy changes the draw of a
    seed only if the new one itself is drawn.
    """
    key = random.random()

    def weight(name: str) -> float:
        return Random(f"{key} {name}").random()  # noqa: S311 - nothing secret

    able = (name for name, kind in STRATEGIES.items() if with_heads or not kind.needs_heads)
    return max(able, key=weight)
