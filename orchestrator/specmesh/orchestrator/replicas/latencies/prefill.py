"""What it costs to read a prefix, as against waiting for a replica that holds it."""

from __future__ import annotations

import math

from specmesh.orchestrator.replicas.latencies.sliding import SlidingWindow

WINDOW = 64
"""How many of the latest calls of each kind count."""
LEAST_TOKENS = 64
"""A forward that reads fewer takes about as long as any."""


class PrefillCost:
    """Learns from verifications how many tokens of a prefix take as long to read as a verification
    that reads none.

    The forwards' own times count, which say nothing of how busy a replica is.
    """

    def __init__(self) -> None:
        self.tokens_a_call = math.inf
        """That many tokens; infinite until prefills are known to cost anything."""
        self._forward_s = SlidingWindow(WINDOW)
        self._token_s = SlidingWindow(WINDOW)
        self._is_known = False

    def add(self, num_read: int, forward_s: float) -> None:
        """A verification read ``num_read`` tokens of its prefix that its replica did not hold."""
        if num_read < LEAST_TOKENS:
            self._forward_s.add(forward_s)
            self._is_known = True
        elif self._is_known:
            self._token_s.add(max(0.0, forward_s - self._forward_s.median) / num_read)
            token_s = self._token_s.median
            self.tokens_a_call = self._forward_s.median / token_s if token_s else math.inf
