"""The times of answered calls, from which an orchestrator learns how fast its mesh is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MAX_READ_TOKENS = 8
"""Prefix tokens that a drafter may have computed in a draft that still counts for its speed."""


class ReplicaCost(NamedTuple):
    """The cost of a call as its replica reports it: the message ComputeCost, in seconds."""

    queue_s: float = 0.0
    """Time from the call's arrival to its first forward."""
    forward_s: float = 0.0
    """Time in forwards; 0 if it was not reported."""
    num_computed_tokens: int = 0
    """Tokens that forwards computed: the prefix's last token, the draft's tokens, and prefix tokens
    that the replica lacked. 0 if it was not reported."""
    num_batch_calls: int = 0
    """Calls that shared the last forward, this one included; 0 if it was not reported."""
    num_batch_tokens: int = 0
    """Tokens of all these calls in that forward."""
    num_worthwhile_calls: int = 0
    """Calls that should share a forward at most; 0 if the replica knows no such bound."""
    grammar_s: float = 0.0
    """Time in which the call waited for its grammar to be compiled, before ``queue_s`` began."""
    computed_at_s: float = 0.0
    """The time at which the last forward ended, by the replica's own clock; 0 if it was not
    reported."""

    def without_grammar(self, seconds: float) -> float:
        """Return the part of ``seconds`` that tells how fast and how busy the replica is."""
        return seconds - max(0.0, min(seconds, self.grammar_s))

    @property
    def load(self) -> float:
        """The time that the call waited at the replica divided by its forward time, at most 1."""
        return self.queue_s / self.forward_s if self.queue_s < self.forward_s else 1.0


class TimedVerification(NamedTuple):
    """A verification of ``num_drafted`` draft tokens that took ``seconds`` from the request to the
    answer, draft of the target's heads included."""

    seconds: float
    num_drafted: int
    cost: ReplicaCost
    heads_s: float = 0.0
    """Time in which the target's heads drafted."""
    num_heads_levels: int = 0
    """Levels that they drafted."""
    num_heads_nodes: int = 0
    """Tokens of all these levels."""
    is_further: bool = False
    """True if it is a further token of a call, for which the replica waited for nobody."""
    behind_s: float = 0.0
    """The time for which it waited to be read, divided by the further tokens of its call."""
    waited_s: float = 0.0
    """The time for which it waited to be read."""


@dataclass(frozen=True, slots=True)
class TimedDraft:
    """The levels of a draft that came with one message, and what they took."""

    num_levels: int
    num_nodes: int
    cost: ReplicaCost

    @property
    def read_the_prefix(self) -> bool:
        """True if the drafter first had to compute much of the prefix. A rarely used drafter always
        has to, and would look too slow ever to be used again."""
        return self.cost.num_computed_tokens > 2 * self.num_nodes + MAX_READ_TOKENS
