"""Latencies of the mesh as this orchestrator sees them: running medians over all requests."""

from __future__ import annotations

from collections import defaultdict

from specmesh.orchestrator.replicas.latencies.patience import CallPatience
from specmesh.orchestrator.replicas.latencies.prefill import PrefillCost
from specmesh.orchestrator.replicas.latencies.sliding import RunningMedian
from specmesh.orchestrator.replicas.latencies.token_price import TokenPrice

VERIFY_SECONDS = 60.0
"""Longest timeout of one Verify, and its timeout until latencies are known."""
DRAFT_SECONDS = 10.0
"""Timeout of one draft with all its attempts, after which the round goes on without it."""
UNKNOWN_DRAFT_SECONDS = 3.0
"""Timeout of each message of a draft until latencies are known."""
DRAFT_FLOOR_SECONDS = 0.5
"""Shortest timeout of a message of a draft once latencies are known."""


class Latencies:
    """Seconds per verification, without the time of its heads, and seconds per drafted level for
    each drafter model."""

    def __init__(self) -> None:
        self.target_s = RunningMedian()
        self.price = TokenPrice()
        self.heads_s = RunningMedian()
        """Seconds per level that the target's heads draft."""
        self.prefill = PrefillCost()
        """Cost of prefills at the target."""
        self.target_load = RunningMedian()
        """Time that verifications wait at a replica, divided by their forward time; at most 1."""
        self.verifications = CallPatience(VERIFY_SECONDS, VERIFY_SECONDS)
        self._drafter_s: defaultdict[str, RunningMedian] = defaultdict(RunningMedian)
        self._drafts: defaultdict[str, CallPatience] = defaultdict(_draft_patience)

    def drafts(self, kind: str) -> CallPatience:
        """Return the timeouts for messages of drafts by the model ``kind``."""
        return self._drafts[kind]

    def drafter_s(self, kind: str) -> RunningMedian:
        """Return the seconds per drafted level of drafters that serve the model ``kind``."""
        return self._drafter_s[kind]

    def forget(self, replica: str) -> None:
        """Forget a process that is gone: its successor may be faster or slower."""
        for patience in (self.verifications, *self._drafts.values()):
            patience.forget(replica)


def _draft_patience() -> CallPatience:
    return CallPatience(DRAFT_SECONDS, UNKNOWN_DRAFT_SECONDS, DRAFT_FLOOR_SECONDS)
