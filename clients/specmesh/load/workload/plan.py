"""Everything that says what a run sends; with the seed it is the same again, to the token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from specmesh.load.workload.arrivals import Arrivals, Users
from specmesh.load.workload.conversations import Conversation, Conversations
from specmesh.load.workload.draws import drawn_for
from specmesh.load.workload.lengths import Length
from specmesh.load.workload.variations import Variation, choose


class RunPhase(StrEnum):
    """The parts of a run; only what is to begin in the measured one counts."""

    WARM_UP = "warm-up"
    MEASURED = "measured"
    COOL_DOWN = "cool-down"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLength:
    """How long a run lasts. The cool-down keeps the load up while the last measured answers end.

    ``duration_s`` None leaves it to ``max_conversations`` or the end of a trace.
    """

    warm_up_s: float = 0.0
    duration_s: float | None = None
    cool_down_s: float = 0.0
    max_conversations: int | None = None

    @property
    def total_s(self) -> float | None:
        """Seconds until nothing begins any more; None if time sets no end."""
        if self.duration_s is None:
            return None
        return self.warm_up_s + self.duration_s + self.cool_down_s

    def phase(self, at_s: float) -> RunPhase:
        """That of a request which is to begin ``at_s`` seconds after the start."""
        if at_s < self.warm_up_s:
            return RunPhase.WARM_UP
        if self.duration_s is not None and at_s >= self.warm_up_s + self.duration_s:
            return RunPhase.COOL_DOWN
        return RunPhase.MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is sent, when, and what becomes of it."""

    arrivals: Arrivals | Users
    conversations: Conversations
    extent: RunLength
    variations: tuple[Variation, ...]
    output_tokens: Length | None
    """Limit of each answer that its prompt sets none for; None leaves it to the server."""
    ignore_end: bool = False
    """Whether answers go on to that limit."""
    think_s: float = 0.0
    """Mean pause before the next turn of a conversation in an open loop, exponential."""
    cancelled_share: float = 0.0
    cancelled_after: Length | None = None
    """Tokens after which those are cancelled."""
    timeout_s: float = 60.0
    """For each request, from its intended start."""
    seed: int = 0
    words_per_token: float = 1.0
    """Measured of the server's tokenizer."""

    def beginnings(self, part: int, parts: int) -> Iterator[tuple[int, float]]:
        """Number and time, in seconds from the start, of each conversation of an open loop that
        falls to generator ``part`` of ``parts``: every so many-th, so that all of them together
        make the one schedule."""
        assert not isinstance(self.arrivals, Users)
        total_s, most = self.extent.total_s, self.extent.max_conversations
        for number, at_s in enumerate(self.arrivals.times(drawn_for(self.seed, "arrivals"))):
            if (total_s is not None and at_s >= total_s) or (most is not None and number >= most):
                return
            if number % parts == part:
                yield number, at_s

    def conversation(self, number: int) -> Conversation:
        """The one of that number."""
        return self.conversations.conversation(number, self.seed, self.words_per_token)

    def fate(self, number: int, turn: int, num_output_tokens: int | None) -> RequestDraw:
        """What is drawn for a request: the answer to ``turn`` of conversation ``number``."""
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
    """What is drawn for one request. ``variation`` is an index, ``cancel_after`` tokens."""

    variation: int
    max_tokens: int | None
    cancel_after: int | None
    sampling_seed: int
