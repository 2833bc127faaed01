"""The number of tokens for which the target may decode on by itself."""

from __future__ import annotations

from typing import Final

from specmesh.orchestrator.strategies.events import Capacity

MOST_TOKENS: Final = 32
"""The most further tokens of a call. After that the request of the next one costs little, and the
replica may be another."""
LONGEST_S: Final = 1.0
"""The longest time for which a call goes on: a replica that drains waits for its calls."""


def num_further(capacity: Capacity, num_remaining: int) -> int:
    """Return how many further tokens to ask for with the next one, when the answer may still have
    ``num_remaining``. None while the speed is unknown: the first call may read a long prompt."""
    if not capacity.decoding_s:
        return 0
    return min(MOST_TOKENS, num_remaining - 1, int(LONGEST_S / capacity.decoding_s))
