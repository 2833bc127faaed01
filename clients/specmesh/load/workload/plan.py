"""The workload of a run; with the same seed it is the same again, to the token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from specmesh.load.workload.arrivals import Arrivals, ReplayedArrivals, Users
from specmesh.load.workload.conversations import Conversation, Conversations
from specmesh.load.workload.draws import drawn_for
from specmesh.load.workload.lengths import Length
from specmesh.load.workload.variations import Variation, choose


class RunPhase(StrEnum):
    """The phases of a run; only requests due in the measured one count."""

    WARM_UP = "warm-up"
    MEASURED = "measured"
    COOL_DOWN = "cool-down"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLength:
    """The length of a run. The cool-down keeps the load up while the last measured answers end.

    If ``duration_s`` is None, ``max_conversations`` or the end of a trace ends the run.
    """

    warm_up_s: float = 0.0
    duration_s: float | None = None
    cool_down_s: float = 0.0
    max_conversations: int | None = None

    @property
    def total_s(self) -> float | None:
        """Return the seconds until no more requests begin; None if time sets no end."""
        if self.duration_s is None:
            return None
        return self.warm_up_s + self.duration_s + self.cool_down_s

    def phase(self, at_s: float) -> RunPhase:
        """Return the phase of a request due ``at_s`` seconds after the start."""
        if at_s < self.warm_up_s:
            return RunPhase.WARM_UP
        if self.duration_s is not None and at_s >= self.warm_up_s + self.duration_s:
            return RunPhase.COOL_DOWN
        return RunPhase.MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The requests to send, their times, limits and cancellations."""

    arrivals: Arrivals | Users
    conversations: Conversations
    extent: RunLength
    variations: tuple[Variation, ...]
    output_tokens: Length | None
    """Limit of each answer whose prompt sets none; None leaves it to the server."""
    ignore_end: bool = False
    """True if answers continue past the end of text up to that limit."""
    think_s: float = 0.0
    """Mean of the exponential pause before the next turn of a conversation in an open loop."""
    cancelled_share: float = 0.0
    cancelled_after: Length | None = None
    """Number of tokens after which that share is cancelled."""
    timeout_s: float = 60.0
    """Timeout of each request, from when it is due."""
    seed: int = 0
    words_per_token: float = 1.0
    """Ratio measured with the server's tokenizer."""

    @property
    def num_conversations(self) -> int | None:
        """Return the number of conversations after which the load ends; None if only time ends
        it."""
        most = self.extent.max_conversations
        if not isinstance(self.arrivals, ReplayedArrivals):
            return most
        recorded = len(self.arrivals.seconds)
        return recorded if most is None else min(most, recorded)

    def beginnings(self, part: int, parts: int) -> Iterator[tuple[int, float]]:
        """Yield the number and the start time of each conversation that generator ``part`` of
        ``parts`` sends in an open loop. Times are in seconds from the start. A generator takes
        every ``parts``-th conversation, so that all of them together make the one schedule."""
        assert not isinstance(self.arrivals, Users)
        total_s, most = self.extent.total_s, self.extent.max_conversations
        for number, at_s in enumerate(self.arrivals.times(drawn_for(self.seed, "arrivals"))):
            if (total_s is not None and at_s >= total_s) or (most is not None and number >= most):
                return
            if number % parts == part:
                yield number, at_s

    def conversation(self, number: int) -> Conversation:
        """Return the conversation of that number."""
        return self.conversations.conversation(number, self.seed, self.words_per_token)

    def fate(self, number: int, turn: int, num_output_tokens: int | None) -> RequestDraw:
        """Draw the settings of one request, the one for ``turn`` of conversation ``number``."""
        rng = drawn_for(self.seed, "fate", number, turn)
        variation = choose(self.variations, rng)
        limit = num_output_tokens
        if limit is None and self.output_tokens is not None:
            limit = self.output_tokens.draw(rng)
        cancel_after = None
        if self.cancelled_after is not None and rng.random() < self.cancelled_share:
            cancel_after = self.cancelled_after.draw(rng)
        return RequestDraw(variation, limit, cancel_after, rng.getrandbits(31))


@dataclass(frozen=True, slots=True)
class RequestDraw:
    """The random settings of one request. ``variation`` is an index, ``cancel_after`` a number of
    tokens."""

    variation: int
    max_tokens: int | None
    cancel_after: int | None
    sampling_seed: int
