"""The ways of decoding that a profile compares, and their rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from pydantic import PositiveFloat, PositiveInt

from specmesh.decoding.trees.tree import TokenTree
from specmesh.simulation.calls import FIRST_DRAFT_TOKENS
from specmesh.simulation.costs import MeshCosts
from specmesh.tools.kit.experiment import AUTOREGRESSIVE, HEADS


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
class ProfiledCosts(MeshCosts):
    """The costs of a mesh, and the ``observed`` rounds of the ways that were tried, with one stream
    and with ``MANY``."""

    observed: tuple[ObservedRounds, ...] = ()


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


def mean_round(way: Way, temperature: float, rounds: Sequence[ProfiledRound]) -> ProfiledAcceptance:
    """Return the mean of ``rounds``, which must not be empty."""
    # Heads begin at the target's own token.
    first = FIRST_DRAFT_TOKENS if way.drafting is Drafting.DRAFTER else 1
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
