"""The events that drivers pass to strategies: results of commands, and the mesh's capacity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.drafting import TopK
from specmesh.decoding.predict.round_costs import RoundCosts
from specmesh.decoding.sampling import Distribution
from specmesh.orchestrator.strategies.commands import TaskId

DrafterName = str | int
"""The driver's name of a drafter, which keeps it while other drafters come and go."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """More nodes of a draft, numbered on from the previous ones; ``last`` ends the task.

    A task may end with fewer levels than requested, or none. ``distributions`` (rejection mode) and
    ``choices`` (if requested) are keyed by the parent of the new nodes.
    """

    task: TaskId
    token_ids: tuple[int, ...]
    parents: tuple[int, ...]
    distributions: Mapping[int, Distribution]
    last: bool
    choices: Mapping[int, TopK] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verified:
    """The target's verdict on a tree, and what its heads drafted below ``verdict.next_token``,
    which is node 0; None if no draft was requested or the replica has no heads. If there is
    ``more``, the task goes on with a further token (``Verify.num_further``)."""

    task: TaskId
    verdict: Verdict
    next_draft: Drafted | None = None
    tried: tuple[int, ...] | None = None
    """The only nodes that were sent to the replica, if it verifies chains only; None means all."""
    more: bool = False
    collected: tuple[int, ...] = ()
    """The target's own tokens after the verdict's, which came with it."""

    @property
    def own_tokens(self) -> tuple[int, ...]:
        """The target's own tokens behind the accepted ones."""
        return (self.verdict.next_token, *self.collected)


@dataclass(frozen=True, slots=True)
class Assessed:
    """The decisions whether to keep each of the assessed positions."""

    task: TaskId
    keeps: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Released:
    """The target may now verify the tokens that were not kept; this ends the task."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Failed:
    """A task ended without a result, after every sensible retry."""

    task: TaskId


@dataclass(frozen=True)  # no slots: strategies ask in every round for what is cached here
class Capacity:
    """The capacity of the mesh: known at the start, and sent again when it changes.

    ``num_verifiers`` is the number of target replicas that this answer may keep busy (speculation
    parallelism, SP): all of them, or its share if calls don't share forwards. ``drafters`` are the
    different drafters, the preferred one first. ``target_s`` is the time of one verification, heads
    excluded, and ``drafter_s`` that of one drafted level with one token, in seconds; None until
    measured. ``drafter_sibling_s`` is the time that each further token adds to such a level, and
    ``drafter_reading_s`` that of reading a prefix which is new to the drafter.
    ``target_alone_s`` is the time of a verification if none had draft tokens, and
    ``target_decoding_s`` that of a further one of such a call; ``target_token_s``
    the time that one more token takes from all answers together that wait for its replica, and
    ``target_first_s`` what the first one takes besides; what more than ``most_tokens`` in a
    verification take is not known yet;
    ``period_s`` that between two forwards of a replica that answers share (``RoundCosts``).
    ``heads_s`` is the time of one level with one token that the target's heads draft, None if it is
    unknown or there are no heads; ``heads_sibling_s`` what each further token adds;
    ``heads_depth`` the most levels that they draft, 0 without heads.
    ``behind_s`` is the time for which a token waits to be read for each further token that calls
    ask for, 0 where it hardly waits: where the orchestrator can't keep up, the tokens of all calls
    wait in one line.
    ``hop_s`` is the time of a call besides queue and forward, there and back, and
    ``drafter_queue_s`` the time for which a draft waits.
    ``num_waiting`` is the number of answers, this one included, that wait for a replica one after
    the other, and so for all that its heads draft; 1 if they share forwards. ``num_sharing`` is the
    number of those that share the forwards of a replica, 1 if none do. ``knows_price`` is
    False until ``target_token_s`` has been measured, which takes forwards of different sizes. Until
    then the costs of heads are unknown: a tree of theirs is verified whatever has been learnt
    meanwhile, by a whole crowd at a time. ``shares_host`` is True if a drafter has the host of a
    verifier, and so may slow it down.
    """

    num_verifiers: int = 1
    drafters: tuple[DrafterName, ...] = (0,)
    target_s: float | None = None
    drafter_s: float | None = None
    drafter_sibling_s: float = 0.0
    drafter_reading_s: float = 0.0
    target_token_s: float = 0.0
    target_first_s: float = 0.0
    target_alone_s: float | None = None
    target_decoding_s: float | None = None
    most_tokens: float = math.inf
    period_s: float = 0.0
    heads_s: float | None = None
    heads_sibling_s: float = 0.0
    heads_depth: int = 0
    num_waiting: float = 1.0
    num_sharing: float = 1.0
    behind_s: float = 0.0
    hop_s: float = 0.0
    drafter_queue_s: float = 0.0
    knows_price: bool = True
    shares_host: bool = False

    @cached_property
    def drafter_costs(self) -> RoundCosts | None:
        """The times of a round with a drafter; None until they are known."""
        if self.drafter_s is None:
            return None
        return self._costs(
            self.drafter_s,
            self.drafter_sibling_s,
            period_s=self.period_s,
            hop_s=self.hop_s,
            queue_s=self.drafter_queue_s,
            reading_s=self.drafter_reading_s,
            num_waiting=self.num_waiting,
        )

    @cached_property
    def heads_costs(self) -> RoundCosts | None:
        """The times of a round with the target's heads, which keep the replica from all that wait
        for it; None until they are known."""
        if self.heads_s is None or not self.knows_price:
            return None
        num_waiting = self.num_waiting
        level_s, sibling_s = self.heads_s * num_waiting, self.heads_sibling_s * num_waiting
        return self._costs(level_s, sibling_s, num_held=self.num_sharing)

    @property
    def draft_cost(self) -> float | None:
        """The cost of drafting a token and verifying it among others, as a share of the time of a
        verification without draft tokens; None until it is known. The target, which decodes on
        otherwise, works call by call until the draft and its verification have ended."""
        costs = self.drafter_costs
        if costs is None or not costs.alone_s:
            return None
        verified_s = costs.token_s + max(0.0, costs.first_s)
        return (costs.level_s + verified_s + 2 * costs.saved_s) / costs.alone_s

    @property
    def trial_cost(self) -> float | None:
        """``draft_cost`` and the time for which the two calls of this answer hold up others that
        decode on, as a share of the time of a verification; None until it is known."""
        cost = self.draft_cost
        if cost is None or not self.alone_s:
            return None
        return cost + 2 * self._rejoining_s / self.alone_s

    @property
    def _rejoining_s(self) -> float:
        """The time that a call takes from answers with which it shares forwards, if those decode
        on: the next forward waits for it, but together they lose no more than another forward."""
        return min((self.num_sharing - 1) * self.hop_s, self.alone_s or 0.0)

    @property
    def token_cost(self) -> float:
        """The time that one more token takes in a verification, as a share of the time of one
        without draft tokens."""
        return self.target_token_s / self.alone_s if self.alone_s else 0.0

    @property
    def alone_s(self) -> float | None:
        """The time of a verification if none had draft tokens; None until it is known."""
        return self.target_s if self.target_alone_s is None else self.target_alone_s

    @property
    def decoding_s(self) -> float | None:
        """The time that a token takes the target alone, which decodes on without a call for each;
        None until it is known."""
        return self.alone_s if self.target_decoding_s is None else self.target_decoding_s

    def _costs(self, level_s: float, sibling_s: float, **others: float) -> RoundCosts | None:
        if self.target_s is None or self.alone_s is None:
            return None
        return RoundCosts(
            self.target_s,
            level_s,
            self.target_token_s,
            self.alone_s,
            saved_s=self.alone_s - (self.decoding_s or 0.0),
            rejoining_s=self._rejoining_s,
            first_s=self.target_first_s,
            most_tokens=self.most_tokens,
            sibling_s=sibling_s,
            **others,
        )


Event = Drafted | Verified | Assessed | Released | Failed | Capacity
