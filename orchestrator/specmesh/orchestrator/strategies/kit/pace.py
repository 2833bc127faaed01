"""The pace of a drafter's messages."""

from __future__ import annotations

from specmesh.orchestrator.strategies.events import Capacity

MESSAGE_S = 2e-3
"""Drafting time covered by one message. A message costs both ends some tenths of a millisecond, in
which a fast drafter could draft another token."""


def levels_per_message(capacity: Capacity, lookahead: int) -> int:
    """Return how many levels take about ``MESSAGE_S``, at most what a verification waits for."""
    if not capacity.drafter_s:
        return 1
    return max(1, min(lookahead, int(MESSAGE_S / capacity.drafter_s)))
