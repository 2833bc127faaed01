"""The cost of a prefill, compared with waiting for a replica that holds the prefix."""

from __future__ import annotations

import math

from specmesh.orchestrator.replicas.latencies.sliding import SlidingWindow

WINDOW = 64
"""Number of the latest calls of each kind that count."""
LEAST_TOKENS = 64
"""Tokens below which the number of tokens hardly affects the time of a forward."""


class PrefillCost:
    """Learns from verifications how many prefix tokens take as long to prefill as one verification
    that prefills none.

    It uses the times of the forwards alone, which do not depend on how busy a replica is.
    """

    def __init__(self) -> None:
        self.tokens_a_call = math.inf
        """The learnt number; infinite until prefills are known to cost anything."""
        self._forward_s = SlidingWindow(WINDOW)
        self._token_s = SlidingWindow(WINDOW)
        self._is_known = False

    def add(self, num_read: int, forward_s: float) -> None:
        """Record a verification that read ``num_read`` prefix tokens its replica did not hold."""
        if num_read < LEAST_TOKENS:
            self._forward_s.add(forward_s)
            self._is_known = True
        elif self._is_known:
            self._token_s.add(max(0.0, forward_s - self._forward_s.median) / num_read)
            token_s = self._token_s.median
            self.tokens_a_call = self._forward_s.median / token_s if token_s else math.inf
