"""How long the mesh takes, as seen from here: running medians, shared by all requests."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from operator import itemgetter
from statistics import median

from specmesh.orchestrator.mesh.patience import CallPatience
from specmesh.orchestrator.mesh.sliding import SlidingWindow

WINDOW = 64
"""How many of the latest calls count."""
MIN_HALF = 8
"""With fewer calls on either side a slope is noise."""
EVERY = 8
"""After so many calls a slope is found anew: it takes longer than all else that one teaches."""

_WIDTH = itemgetter(0)


class RunningMedian:
    """The median of the latest values, to two digits, so that it changes only when it matters."""

    def __init__(self) -> None:
        self.value: float | None = None
        """None before the first."""
        self._latest = SlidingWindow(WINDOW)

    def add(self, value: float) -> None:
        """Take a value in."""
        self._latest.add(value)
        self.value = float(f"{self._latest.median:.1e}")


class RunningSlope:
    """How much longer a call takes for each token more in it: the wider half of the latest calls
    against the narrower, by their medians, to one digit."""

    def __init__(self) -> None:
        self.value = 0.0
        """Seconds; 0 as long as calls of different widths haven't told."""
        self._latest: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._num_new = 0

    def add(self, num_tokens: int, seconds: float) -> None:
        """Take a call in."""
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
            # Nobody asks for more than the target's own token, maybe for what was known of the
            # slope: it must not go on saying so.
            self.value = 0.0


VERIFY_SECONDS = 60.0
"""Cap of one Verify, until calls have told how long they take, and after."""
DRAFT_SECONDS = 10.0
"""Cap of one Draft, every try of it: past it the round goes on without one."""
UNKNOWN_DRAFT_SECONDS = 3.0
"""Likewise, until calls have told."""
DRAFT_FLOOR_SECONDS = 0.5


class Latencies:
    """Seconds of one verification, and of one drafted level by the drafter's model."""

    def __init__(self) -> None:
        self.target_s = RunningMedian()
        self.target_token_s = RunningSlope()
        self.target_load = RunningMedian()
        """How long verifications wait at a replica, by how long they take; 1 at most."""
        self.verifications = CallPatience(VERIFY_SECONDS, VERIFY_SECONDS)
        self._drafter_s: defaultdict[str, RunningMedian] = defaultdict(RunningMedian)
        self._drafts: defaultdict[str, CallPatience] = defaultdict(_draft_patience)

    def drafts(self, kind: str) -> CallPatience:
        """How long drafts of the model ``kind`` may take."""
        return self._drafts[kind]

    def drafter_s(self, kind: str) -> RunningMedian:
        """Of the drafters that serve the model ``kind``."""
        return self._drafter_s[kind]


def _medians(calls: Sequence[tuple[int, float]]) -> tuple[float, float]:
    widths, seconds = zip(*calls, strict=True)
    return median(widths), median(seconds)


def _draft_patience() -> CallPatience:
    return CallPatience(DRAFT_SECONDS, UNKNOWN_DRAFT_SECONDS, DRAFT_FLOOR_SECONDS)
