"""What a profile says of a mesh's times, and of the rounds of its strategies."""

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
    """What a call takes on top of queue and forward: transport, reading, judging."""

    base_ms: float
    token_ms: float
    """For each token of the tree that is sent or received."""
    call_ms: float
    """For each call more that shares the forward: these are judged and answered in turn."""

    def ms(self, tokens: float, calls: float = 1.0) -> float:
        """Of a call with so many draft tokens, in a forward of so many calls."""
        return self.base_ms + self.token_ms * tokens + self.call_ms * (calls - 1)


@dataclass(frozen=True, slots=True)
class Contention:
    """By what factor forwards take longer while the other role's process works, too."""

    target: float = 1.0
    drafter: float = 1.0


MANY = 8
"""Streams with which an orchestrator is busy."""


class Drafting(StrEnum):
    """Who drafts."""

    NOBODY = "nobody"
    DRAFTER = "drafter"
    HEADS = "heads"


@dataclass(frozen=True, slots=True)
class Way:
    """A strategy and the options that leave it nothing to adapt."""

    strategy: str
    lookahead: int | None = None
    width: int | None = None

    @property
    def text(self) -> str:
        """As on a command line."""
        given = (("lookahead", self.lookahead), ("width", self.width))
        options = [f"-o {name}={value}" for name, value in given if value is not None]
        return " ".join((self.strategy, *options))

    @property
    def drafting(self) -> Drafting:
        """Who drafts."""
        others = {AUTOREGRESSIVE: Drafting.NOBODY, HEADS: Drafting.HEADS}
        return others.get(self.strategy, Drafting.DRAFTER)


@dataclass(frozen=True, slots=True)
class Orchestrating:
    """What an orchestrator takes for a round, one round after the other, and whatever else a round
    takes that is not known of replicas."""

    strategy: str
    one_ms: float
    """With one stream."""
    many_ms: float
    """With ``MANY``."""

    def ms(self, streams: int) -> float:
        """With so many streams."""
        share = min(1.0, (streams - 1) / (MANY - 1))
        return self.one_ms + share * (self.many_ms - self.one_ms)


@dataclass(frozen=True, slots=True)
class Cores:
    """The processor cores that a service may use, by number, and its threads that compute."""

    numbers: tuple[int, ...]
    threads: int = 1


@dataclass(frozen=True, slots=True)
class ObservedRounds:
    """How many rounds a second a way of decoding made through an orchestrator, all streams
    together."""

    way: Way
    temperature: float
    streams: int
    """One or ``MANY``."""
    rounds_per_s: PositiveFloat
    tries: PositiveInt
    """By which that is known."""


@dataclass(frozen=True, slots=True)
class MeshCosts:
    """The times of one replica of each role, in milliseconds."""

    target: Law
    verify_hop: Hop
    drafter: Law | None = None
    """None without a drafter, as ``draft_hop`` then."""
    draft_hop: Hop | None = None
    heads: Law | None = None
    """Of a step of the target's heads; None without any."""
    contention: Contention = Contention()
    orchestrating: tuple[Orchestrating, ...] = ()
    """By strategy; empty if no orchestrator was measured."""
    cores: Mapping[str, Cores] = field(default_factory=dict)
    """By role: target, drafter, orchestrator. One that is missing shares its cores with none."""
    observed: tuple[ObservedRounds, ...] = ()
    """Ways that were tried, with one stream and with ``MANY``."""

    def orchestrating_ms(self, strategy: str, streams: int) -> float:
        """Of a round of ``strategy``; 0 if none was measured."""
        own = (each.ms(streams) for each in self.orchestrating if each.strategy == strategy)
        return next(own, 0.0)


@dataclass(frozen=True, slots=True)
class ProfiledAcceptance:
    """The mean round of a way of decoding at a temperature."""

    way: Way
    temperature: float
    tokens: PositiveFloat
    """That a verification yields, the target's own included."""
    nodes: float
    """That a verification covers."""
    levels: tuple[float, ...] = ()
    """Tokens that go through each of the forwards that draft; for a level that not all rounds
    reach, as many as there are on average; fewer than 1: it is a forward of one in some rounds."""
    strategy_ms: float = 0.0
    """Of an orchestrator for the strategy's own decisions, and for reading what was drafted."""


AUTOREGRESSIVE_ROUND = ProfiledAcceptance(Way(AUTOREGRESSIVE), 0.0, tokens=1.0, nodes=0.0)


@dataclass(frozen=True, slots=True)
class ProfiledRound:
    """One round as it went: the tree that was verified, how many tokens it yielded, and how long
    the strategy worked on it."""

    tree: TokenTree
    tokens: int
    strategy_ms: float = 0.0


FIRST_TOKENS = {Drafting.DRAFTER: 2, Drafting.HEADS: 1}
"""Tokens in a draft's first forward: a drafter also reads the last token that it drafted itself,
heads begin at the target's own."""


def mean_round(way: Way, temperature: float, rounds: Sequence[ProfiledRound]) -> ProfiledAcceptance:
    """What ``rounds``, at least one, were like on average."""
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
