"""The costs of a mesh: what is measured by ``specmesh profile``, and what all simulations take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Self

from specmesh.simulation.law import Law

MANY = 8
"""Number of streams with which an orchestrator is busy."""


@dataclass(frozen=True, slots=True)
class Hop:
    """The time of a call, there and back, besides queue and forward: transport, parsing,
    judging."""

    base_ms: float = 0.0
    token_ms: float = 0.0
    """Time for each token of the tree that is sent or received."""
    call_ms: float = 0.0
    """Time for each further call that shares the forward, because these are judged and answered in
    turn."""

    def ms(self, tokens: float) -> float:
        """Return the time of a call with ``tokens`` draft tokens that has its forward to itself."""
        return self.base_ms + self.token_ms * tokens


@dataclass(frozen=True, slots=True)
class Contention:
    """The factors by which forwards slow down while the other role's process works, too."""

    target: float = 1.0
    drafter: float = 1.0


@dataclass(frozen=True, slots=True)
class Orchestrating:
    """The time of an orchestrator per round, which it spends on one round after the other. It
    includes any other time of a round that replicas don't report."""

    strategy: str
    one_ms: float
    """Time with one stream."""
    many_ms: float
    """Time with ``MANY`` streams."""

    def ms(self, streams: int) -> float:
        """Return the time with that many streams."""
        share = min(1.0, (streams - 1) / (MANY - 1))
        return self.one_ms + share * (self.many_ms - self.one_ms)


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores that a service may use, by number, and the number of its compute threads."""

    numbers: tuple[int, ...]
    threads: int = 1


@dataclass(frozen=True, slots=True)
class MeshCosts:
    """The times of one replica of each role, in milliseconds."""

    target: Law
    drafters: tuple[Law, ...] = ()
    """One law for each different drafter."""
    heads: Law | None = None
    """Law of a level that the target's heads draft; None without heads."""
    verify_hop: Hop = Hop()
    draft_hop: Hop = Hop()
    contention: Contention = Contention()
    orchestrating: tuple[Orchestrating, ...] = ()
    """One for each strategy; empty if no orchestrator was measured."""
    cores: Mapping[str, Cores] = field(default_factory=dict)
    """Cores by role: target, drafter, orchestrator. A missing role shares its cores with none."""

    @classmethod
    def fixed(
        cls,
        target_ms: float,
        drafter_ms: float | None = None,
        heads_ms: float | None = None,
        hop_ms: float = 0.0,
    ) -> Self:
        """Return costs of one number each. A hop is one way; without a drafter or heads, theirs are
        None."""
        hop = Hop(2 * hop_ms)
        return cls(
            Law.fixed(target_ms),
            () if drafter_ms is None else (Law.fixed(drafter_ms),),
            None if heads_ms is None else Law.fixed(heads_ms),
            *(hop, hop),
        )

    def orchestrating_ms(self, strategy: str, streams: int) -> float:
        """Return the orchestrator's time of a round of ``strategy``; the mean of all strategies if
        that one was not measured, 0 if none was."""
        own = {each.strategy: each.ms(streams) for each in self.orchestrating}
        return own.get(strategy, fmean(own.values()) if own else 0.0)
