"""Latencies of the mesh as this orchestrator sees them, over all requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from specmesh.orchestrator.replicas.latencies.draft_times import DraftTimes
from specmesh.orchestrator.replicas.latencies.observations import TimedDraft, TimedVerification
from specmesh.orchestrator.replicas.latencies.patience import CallPatience
from specmesh.orchestrator.replicas.latencies.prefill import LEAST_TOKENS, PrefillCost
from specmesh.orchestrator.replicas.latencies.response_waits import ResponseWaits
from specmesh.orchestrator.replicas.latencies.sliding import RunningMedian
from specmesh.orchestrator.replicas.latencies.token_price import TokenPrice
from specmesh.orchestrator.strategies.events import Capacity

VERIFY_SECONDS = 60.0
"""Longest timeout of one Verify, and its timeout until latencies are known."""
DRAFT_SECONDS = 10.0
"""Timeout of one draft with all its attempts, after which the round goes on without it."""
UNKNOWN_DRAFT_SECONDS = 3.0
"""Timeout of each message of a draft until latencies are known."""
DRAFT_FLOOR_SECONDS = 0.5
"""Shortest timeout of a message of a draft once latencies are known, except of a probe."""

LEAST_WAIT_SECONDS = 0.005
"""A further token that waits less than this waits by chance."""
MOST_COLLECT_SECONDS = 0.05
"""The longest time for which further tokens are collected because this orchestrator is behind."""
LEAST_BEHIND_SECONDS = 0.001
"""A further token that waits less than this for each that its call asks for, waits by chance."""

FIRST = 32
"""The number of first observations each of which counts at once."""
FEW = 4
"""After those, the least number of new observations that count together."""
MANY = 64
"""Later one in ``MANY`` of all observations so far must be new, but no more than there are answers:
among many, a few hardly change a mean."""


class Latencies:
    """Seconds per verification, without the time of its heads, and those of drafting for the heads
    and each drafter model."""

    def __init__(self) -> None:
        self.target_s = RunningMedian()
        self.price = TokenPrice()
        self.hop_s = RunningMedian()
        """Seconds of a verification besides those in its replica."""
        self._behind_s = RunningMedian()
        """Seconds for which a further token waits to be read, for each that its call asks for."""
        self._waited_s = RunningMedian()
        """Seconds for which a further token waits to be read."""
        self.waits = ResponseWaits()
        """The time that responses waited to be read."""
        self.heads = DraftTimes()
        """The times that the target's heads take to draft."""
        self.prefill = PrefillCost()
        """Cost of prefills at the target."""
        self.target_load = RunningMedian()
        """Time that verifications wait at a replica, divided by their forward time; at most 1."""
        self.verifications = CallPatience(VERIFY_SECONDS, VERIFY_SECONDS)
        self.further = CallPatience(VERIFY_SECONDS, VERIFY_SECONDS)
        """The timeouts for further tokens of a call."""
        self._drafters: defaultdict[str, DraftTimes] = defaultdict(DraftTimes)
        self._drafter_queue_s: defaultdict[str, RunningMedian] = defaultdict(RunningMedian)
        self._drafts: defaultdict[str, CallPatience] = defaultdict(_draft_patience)
        self._capacities: dict[tuple[object, ...], Capacity] = {}
        """Capacities that were returned since they were last computed anew."""
        self._num_seen = self._num_new = 0
        """Observations so far, and those since then."""

    @property
    def collect_s(self) -> float:
        """The time for which replicas are to collect further tokens: where those wait in line
        anyway, as long again, so that what comes in one response costs less to read."""
        waited_s = self._waited_s.value or 0.0
        return min(waited_s, MOST_COLLECT_SECONDS) if waited_s >= LEAST_WAIT_SECONDS else 0.0

    def drafts(self, kind: str) -> CallPatience:
        """Return the timeouts for messages of drafts by the model ``kind``."""
        return self._drafts[kind]

    def drafter(self, kind: str) -> DraftTimes:
        """Return what drafting takes drafters that serve the model ``kind``."""
        return self._drafters[kind]

    def verified(self, verification: TimedVerification) -> None:
        """Learn from an answered verification."""
        self._num_new += 1
        cost = verification.cost
        if verification.num_heads_levels:
            self.heads.add(
                verification.num_heads_levels, verification.num_heads_nodes, verification.heads_s
            )
        if not verification.is_further:
            target_s = max(0.0, verification.seconds - verification.heads_s)
            self.target_s.add(target_s)
            if cost.forward_s > 0:
                self.hop_s.add(max(0.0, target_s - cost.queue_s - cost.forward_s))
            self.target_load.add(cost.load)
        else:
            self._behind_s.add(verification.behind_s)
            self._waited_s.add(verification.waited_s)
        num_read = cost.num_computed_tokens - verification.num_drafted - 1
        if num_read < LEAST_TOKENS:
            num_rows = cost.num_batch_tokens or verification.num_drafted + 1
            self.price.add(
                *(cost.num_batch_calls or 1, num_rows),
                *(cost.forward_s, cost.queue_s, verification.heads_s),
            )
        self.prefill.add(num_read, cost.forward_s)

    def drafted(self, kind: str, draft: TimedDraft) -> None:
        """Learn from levels that a drafter of the model ``kind`` has answered."""
        self._num_new += 1
        if draft.cost.forward_s <= 0 or not draft.num_levels:
            return
        times, seen = self.drafter(kind), (draft.num_levels, draft.num_nodes, draft.cost.forward_s)
        if draft.read_the_prefix:
            times.add_with_prefix(*seen)
        else:
            times.add(*seen)
            self._drafter_queue_s[kind].add(draft.cost.queue_s)

    def capacity(
        self,
        num_verifiers: int,
        kinds: Sequence[str],
        heads_depth: int,
        num_answers: int,
        *,
        shares_host: bool = False,
    ) -> Capacity:
        """Return what each of ``num_answers`` may count on in a mesh of so many usable verifiers,
        drafters of the models ``kinds``, and heads of that depth. ``shares_host`` is as in
        ``Capacity``.

        Answers ask after each observation, and to compute it anew takes as long as all else that
        is done for a token, though one of many observations hardly changes it.
        """
        few = max(FEW, min(num_answers, self._num_seen // MANY))
        if self._num_new >= (few if self._num_seen >= FIRST else 1):
            self._capacities.clear()
            self._num_seen, self._num_new = self._num_seen + self._num_new, 0
        asked = (num_verifiers, tuple(kinds), heads_depth, num_answers, shares_host)
        if (capacity := self._capacities.get(asked)) is None:
            capacity = self._capacities[asked] = self._capacity(*asked)
        return capacity

    def _capacity(
        self,
        num_verifiers: int,
        kinds: Sequence[str],
        heads_depth: int,
        num_answers: int,
        shares_host: bool,
    ) -> Capacity:
        hop_s, decoding_s = self.hop_s.value or 0.0, self.price.decoding_s
        behind_s = self._behind_s.value or 0.0
        if not self.price.period_s:  # a call has its replica to itself
            num_verifiers = min(num_verifiers, max(1, num_verifiers // max(1, num_answers)))
        return Capacity(
            num_verifiers=num_verifiers,
            drafters=tuple(kinds) or (0,),
            target_s=self.target_s.value,
            target_alone_s=_rounded(decoding_s and hop_s + decoding_s),
            target_decoding_s=_rounded(decoding_s),
            drafter_s=self.drafter(kinds[0]).level_s if kinds else None,
            drafter_sibling_s=self.drafter(kinds[0]).sibling_s if kinds else 0.0,
            drafter_reading_s=self.drafter(kinds[0]).reading_s if kinds else 0.0,
            target_token_s=self.price.token_s,
            target_first_s=self.price.first_s,
            most_tokens=self.price.most_tokens,
            period_s=self.price.period_s,
            heads_s=self.heads.level_s,
            heads_sibling_s=self.heads.sibling_s,
            heads_depth=heads_depth,
            num_waiting=self.price.num_waiting,
            num_sharing=self.price.num_sharing,
            hop_s=hop_s,
            behind_s=behind_s if behind_s >= LEAST_BEHIND_SECONDS else 0.0,
            drafter_queue_s=(self._drafter_queue_s[kinds[0]].value or 0.0) if kinds else 0.0,
            knows_price=self.price.is_known,
            shares_host=shares_host,
        )

    def forget(self, replica: str) -> None:
        """Forget a process that is gone: its successor may be faster or slower."""
        for patience in (self.verifications, self.further, *self._drafts.values()):
            patience.forget(replica)
        self.waits.forget(replica)


def _rounded(seconds: float | None) -> float | None:
    """Return ``seconds`` rounded to hide small changes."""
    return float(f"{seconds:.1e}") if seconds else None


def _draft_patience() -> CallPatience:
    return CallPatience(DRAFT_SECONDS, UNKNOWN_DRAFT_SECONDS, DRAFT_FLOOR_SECONDS)
