"""The number of tokens for which the target may decode on by itself."""

from __future__ import annotations

from typing import Final

from specmesh.orchestrator.strategies.events import Capacity

MOST: Final = 64
"""The most further tokens of a call. After that the request of the next one costs little, and the
replica may be another."""
LONGEST_S: Final = 2.0
"""The longest time for which a call goes on: a replica that drains waits for its calls."""
LONGEST_BACKLOG_S: Final = 0.3
"""The longest time for which tokens may wait where the orchestrator can't keep up: without
requests, nothing else would hold replicas back. It is more than admission bears
(``MAX_OVERHEAD_MS``), so that fewer answers begin before calls become shorter and cost more."""


def num_further(capacity: Capacity, num_tokens: int) -> int:
    """Return how many further tokens to ask for with the next one, if the answer may still have
    ``num_tokens``. None while the speed is unknown: the first call may read a long prompt."""
    if not capacity.decoding_s:
        return 0
    # Quotients become whole last: those of the shortest times are infinite.
    most = min(MOST, num_tokens - 1, LONGEST_S / capacity.decoding_s)
    if capacity.behind_s:
        # At least one, which tells whether it has caught up.
        most = min(most, max(1, LONGEST_BACKLOG_S / capacity.behind_s))
    return max(0, int(most))
