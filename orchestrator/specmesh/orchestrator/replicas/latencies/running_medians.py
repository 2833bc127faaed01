"""Latencies of the mesh as this orchestrator sees them: running medians over all requests."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from operator import itemgetter
from statistics import median

from specmesh.orchestrator.replicas.latencies.observations import TimedDraft, TimedVerification
from specmesh.orchestrator.replicas.latencies.patience import CallPatience
from specmesh.orchestrator.replicas.latencies.prefill import PrefillCost
from specmesh.orchestrator.replicas.latencies.sliding import SlidingWindow
from specmesh.orchestrator.strategies.events import Capacity

WINDOW = 64
"""Number of the latest calls that count."""
MIN_HALF = 8
"""Fewest calls in each half; with fewer the slope would be noise."""
EVERY = 8
"""Calls between updates of the slope, the slowest of all updates for a call."""

_WIDTH = itemgetter(0)


class RunningMedian:
    """The median of the latest ``WINDOW`` values, rounded to two digits to hide small changes."""

    def __init__(self) -> None:
        self.value: float | None = None
        """None before the first value."""
        self._latest = SlidingWindow(WINDOW)

    def add(self, value: float) -> None:
        """Add a value."""
        self._latest.add(value)
        self.value = float(f"{self._latest.median:.1e}")


class RunningSlope:
    """The time that each additional token adds to a call: the slope between the medians of the
    narrower and the wider half of the latest calls, to one digit. Never negative."""

    def __init__(self) -> None:
        self.value = 0.0
        """Seconds per token; 0 until calls of different widths have been seen."""
        self._latest: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._num_new = 0

    def add(self, num_tokens: int, seconds: float) -> None:
        """Add a call."""
        self._latest.append((num_tokens, seconds))
        self._num_new += 1
        if self._num_new >= EVERY:
            self._num_new = 0
            self._decide()

    def _decide(self) -> None:
        by_width = sorted(self._latest, key=_WIDTH)
        half = len(by_width) // 2
        if half < MIN_HALF:
            return
        narrow, wide = (_medians(calls) for calls in (by_width[:half], by_width[-half:]))
        if wide[0] > narrow[0]:
            slope = (wide[1] - narrow[1]) / (wide[0] - narrow[0])
            self.value = float(f"{max(0.0, slope):.0e}")
        elif wide[0] <= 1:
            # No call has draft tokens any more, maybe because of this slope: without a reset, no
            # call would ever have any again.
            self.value = 0.0


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
        self.target_token_s = RunningSlope()
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

    def verified(self, verification: TimedVerification) -> None:
        """Learn from an answered verification."""
        cost = verification.cost
        if verification.num_heads_levels:
            self.heads_s.add(verification.heads_s / verification.num_heads_levels)
        target_s = max(0.0, verification.seconds - verification.heads_s)
        self.target_s.add(target_s)
        # Prefix tokens that the replica lacked take as long to compute as those of the tree.
        self.target_token_s.add(cost.num_computed_tokens or verification.num_drafted, target_s)
        self.target_load.add(cost.load)
        num_read = cost.num_computed_tokens - verification.num_drafted - 1
        self.prefill.add(num_read, cost.forward_s)

    def drafted(self, kind: str, draft: TimedDraft) -> None:
        """Learn from levels that a drafter of the model ``kind`` has answered."""
        if draft.cost.forward_s > 0 and draft.num_levels and not draft.read_the_prefix:
            self.drafter_s(kind).add(draft.cost.forward_s / draft.num_levels)

    def capacity(self, num_verifiers: int, kinds: Sequence[str], heads_depth: int) -> Capacity:
        """Return what strategies may count on in a mesh of so many usable verifiers, drafters of
        the models ``kinds``, and heads of that depth."""
        return Capacity(
            num_verifiers=num_verifiers,
            drafters=tuple(kinds) or (0,),
            target_s=self.target_s.value,
            drafter_s=self.drafter_s(kinds[0]).value if kinds else None,
            target_token_s=self.target_token_s.value,
            heads_s=self.heads_s.value,
            heads_depth=heads_depth,
        )

    def forget(self, replica: str) -> None:
        """Forget a process that is gone: its successor may be faster or slower."""
        for patience in (self.verifications, *self._drafts.values()):
            patience.forget(replica)


def _medians(calls: Sequence[tuple[int, float]]) -> tuple[float, float]:
    widths, seconds = zip(*calls, strict=True)
    return median(widths), median(seconds)


def _draft_patience() -> CallPatience:
    return CallPatience(DRAFT_SECONDS, UNKNOWN_DRAFT_SECONDS, DRAFT_FLOOR_SECONDS)
