"""Draws from a registry that grows."""

from __future__ import annotations

from random import Random

from specmesh.orchestrator.strategies import STRATEGIES


def draw_strategy(random: Random, *, with_heads: bool = False) -> str:
    """The name of a strategy, each as likely as any other; only ``with_heads`` of one that needs
    heads.

    By rendezvous hashing (Thaler & Ravishankar 1998), so that one strategy more changes what a
    seed means only where that one is drawn.
    """
    key = random.random()

    def weight(name: str) -> float:
        return Random(f"{key} {name}").random()  # noqa: S311 - nothing secret

    able = (name for name, kind in STRATEGIES.items() if with_heads or not kind.needs_heads)
    return max(able, key=weight)
