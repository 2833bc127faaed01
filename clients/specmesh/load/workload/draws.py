"""Randomness: every draw has a generator of its own, named after what it is for.

So request 7 is the same whoever sends it, and whatever was drawn for the six before.
"""

from __future__ import annotations

from random import Random


def drawn_for(seed: int, *name: str | int) -> Random:
    """The generator of what is called ``name`` in a run with ``seed``."""
    return Random("/".join(map(str, (seed, *name))))  # noqa: S311 - need not be unguessable
