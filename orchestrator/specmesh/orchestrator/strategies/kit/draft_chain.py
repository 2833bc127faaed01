"""Drafted tokens in a row."""

from __future__ import annotations

from dataclasses import dataclass, field

from specmesh.decoding.drafting import TopK, confidence
from specmesh.decoding.sampling import Distribution


@dataclass(slots=True)
class DraftChain:
    """Drafted tokens in a row, and what the drafter thought at each of their places."""

    tokens: list[int] = field(default_factory=list)
    choices: list[TopK | None] = field(default_factory=list)
    distributions: list[Distribution | None] = field(default_factory=list)

    def first(self, count: int) -> DraftChain:
        """Its first ``count`` tokens."""
        return DraftChain(self.tokens[:count], self.choices[:count], self.distributions[:count])

    def after(self, count: int) -> DraftChain:
        """All but its first ``count`` tokens."""
        return DraftChain(self.tokens[count:], self.choices[count:], self.distributions[count:])

    @property
    def confidences(self) -> tuple[float, ...]:
        """How likely each token is accepted, for all that the drafter says of it. In greedy and
        coupled mode that is its probability, in rejection mode more (see ``confidence``)."""
        return tuple(map(confidence, self.tokens, self.choices, self.distributions))
