"""Draws from a registry that grows."""

from __future__ import annotations

from random import Random

from specmesh.orchestrator.strategies import STRATEGIES


def draw_strategy(random: Random) -> str:
    """The name of a strategy that needs no heads, each as likely as any other.

    By rendezvous hashing (Thaler & Ravishankar 1998), so that one strategy more changes what a
    seed means only where that one is drawn.
    """
    key = random.random()

    def weight(name: str) -> float:
        return Random(f"{key} {name}").random()  # noqa: S311 - nothing secret

    return max((name for name, kind in STRATEGIES.items() if not kind.needs_heads), key=weight)
