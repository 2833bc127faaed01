"""Randomness: every draw has its own rng, seeded by the name of its purpose.

Thus request 7 does not depend on which process sends it, or on what was drawn for the six before.
"""

from __future__ import annotations

from random import Random


def drawn_for(seed: int, *name: str | int) -> Random:
    """Return the rng for the purpose ``name`` in a run with ``seed``."""
    return Random("/".join(map(str, (seed, *name))))  # noqa: S311 - need not be unguessable
