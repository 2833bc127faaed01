"""Consecutive draft tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

from specmesh.decoding.drafting import TopK, confidence
from specmesh.decoding.sampling import Distribution


@dataclass(slots=True)
class DraftChain:
    """Consecutive draft tokens, with the drafter's likeliest tokens and distribution at each."""

    tokens: list[int] = field(default_factory=list)
    choices: list[TopK | None] = field(default_factory=list)
    distributions: list[Distribution | None] = field(default_factory=list)

    def first(self, count: int) -> DraftChain:
        """Return its first ``count`` tokens."""
        return DraftChain(self.tokens[:count], self.choices[:count], self.distributions[:count])

    def after(self, count: int) -> DraftChain:
        """Return all but its first ``count`` tokens."""
        return DraftChain(self.tokens[count:], self.choices[count:], self.distributions[count:])

    @property
    def drawn_from(self) -> dict[int, Distribution]:
        """The distributions that tokens were drawn from (rejection mode), by the token's parent."""
        return {n: each for n, each in enumerate(self.distributions) if each is not None}

    @property
    def confidences(self) -> tuple[float, ...]:
        """The drafter's estimate that each token is accepted: in greedy and coupled mode the
        token's probability, in rejection mode more (see ``confidence``)."""
        return tuple(map(confidence, self.tokens, self.choices, self.distributions))
