"""The costs in a profile: times of a mesh, and the rounds of its strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

from pydantic import PositiveFloat, PositiveInt

from specmesh.decoding.trees.tree import TokenTree
from specmesh.tools.kit.experiment import AUTOREGRESSIVE, HEADS
from specmesh.tools.profile.law import Law


@dataclass(frozen=True, slots=True)
class Hop:
    """The time of a call besides queue and forward: transport, parsing, judging."""

    base_ms: float
    token_ms: float
    """Time for each token of the tree that is sent or received."""
    call_ms: float
    """Time for each further call that shares the forward, because these are judged and answered in
    turn."""

    def ms(self, tokens: float, calls: float = 1.0) -> float:
        """Return the time of a call with ``tokens`` draft tokens, in a forward of ``calls``
        calls."""
        return self.base_ms + self.token_ms * tokens + self.call_ms * (calls - 1)


@dataclass(frozen=True, slots=True)
class Contention:
    """The factors by which forwards slow down while the other role's process works, too."""

    target: float = 1.0
    drafter: float = 1.0


MANY = 8
"""Number of streams with which an orchestrator is busy."""


class Drafting(StrEnum):
    """The model that drafts."""

    NOBODY = "nobody"
    DRAFTER = "drafter"
    HEADS = "heads"


@dataclass(frozen=True, slots=True)
class Way:
    """A strategy with fixed options, so that it adapts nothing."""

    strategy: str
    lookahead: int | None = None
    width: int | None = None

    @property
    def text(self) -> str:
        """Return it as on a command line."""
        given = (("lookahead", self.lookahead), ("width", self.width))
        options = [f"-o {name}={value}" for name, value in given if value is not None]
        return " ".join((self.strategy, *options))

    @property
    def drafting(self) -> Drafting:
        """Return the model that drafts."""
        others = {AUTOREGRESSIVE: Drafting.NOBODY, HEADS: Drafting.HEADS}
        return others.get(self.strategy, Drafting.DRAFTER)


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
class ObservedRounds:
    """The rounds per second that a way of decoding made through an orchestrator, all streams
    together."""

    way: Way
    temperature: float
    streams: int
    """One or ``MANY``."""
    rounds_per_s: PositiveFloat
    tries: PositiveInt
    """Number of tries behind the figure."""


@dataclass(frozen=True, slots=True)
class MeshCosts:
    """The times of one replica of each role, in milliseconds."""

    target: Law
    verify_hop: Hop
    drafter: Law | None = None
    """None without a drafter; ``draft_hop`` likewise."""
    draft_hop: Hop | None = None
    heads: Law | None = None
    """Law of a step of the target's heads; None without heads."""
    contention: Contention = Contention()
    orchestrating: tuple[Orchestrating, ...] = ()
    """One for each strategy; empty if no orchestrator was measured."""
    cores: Mapping[str, Cores] = field(default_factory=dict)
    """Cores by role: target, drafter, orchestrator. A missing role shares its cores with none."""
    observed: tuple[ObservedRounds, ...] = ()
    """The ways that were tried, with one stream and with ``MANY``."""

    def orchestrating_ms(self, strategy: str, streams: int) -> float:
        """Return the orchestrator's time of a round of ``strategy``; 0 if it was not measured."""
        own = (each.ms(streams) for each in self.orchestrating if each.strategy == strategy)
        return next(own, 0.0)


@dataclass(frozen=True, slots=True)
class ProfiledAcceptance:
    """The mean round of a way of decoding at a temperature."""

    way: Way
    temperature: float
    tokens: PositiveFloat
    """Mean tokens that a verification yields, the target's own included."""
    nodes: float
    """Mean draft tokens that a verification covers."""
    levels: tuple[float, ...] = ()
    """Mean tokens in each of the drafting forwards, over all rounds. A value below 1 means that
    only that share of rounds reaches the level, with a forward of one token."""
    strategy_ms: float = 0.0
    """Time of an orchestrator for the strategy's own decisions and for parsing drafts."""


AUTOREGRESSIVE_ROUND = ProfiledAcceptance(Way(AUTOREGRESSIVE), 0.0, tokens=1.0, nodes=0.0)


@dataclass(frozen=True, slots=True)
class ProfiledRound:
    """One round: the verified tree, the number of tokens it yielded, and how long the strategy
    worked on it."""

    tree: TokenTree
    tokens: int
    strategy_ms: float = 0.0


FIRST_TOKENS = {Drafting.DRAFTER: 2, Drafting.HEADS: 1}
"""Number of tokens in a draft's first forward. A drafter also reads the last token that it drafted
itself; heads begin at the target's own."""


def mean_round(way: Way, temperature: float, rounds: Sequence[ProfiledRound]) -> ProfiledAcceptance:
    """Return the mean of ``rounds``, which must not be empty."""
    first = FIRST_TOKENS[way.drafting]
    depth = max(max(each.tree.depths) for each in rounds)
    counts = [0.0] * depth
    for each in rounds:
        for node_depth in each.tree.depths[1:]:
            counts[node_depth - 1] += 1 / len(rounds)
    drafted = sum(len(each.tree) > 0 for each in rounds) / len(rounds)
    return ProfiledAcceptance(
        way,
        temperature,
        tokens=sum(each.tokens for each in rounds) / len(rounds),
        nodes=sum(len(each.tree) for each in rounds) / len(rounds),
        levels=(first * drafted, *counts[:-1]) if depth else (),
        strategy_ms=median(each.strategy_ms for each in rounds),
    )
