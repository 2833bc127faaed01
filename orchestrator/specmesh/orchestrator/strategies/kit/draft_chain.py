"""Draft tokens in a row."""

from __future__ import annotations

from dataclasses import dataclass, field

from specmesh.decoding.drafting import TopK, confidence
from specmesh.decoding.sampling import Distribution


@dataclass(slots=True)
class DraftChain:
    """Draft tokens in a row, and the drafter's likeliest tokens and distribution at each."""

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
    def drawn_from(self) -> dict[int, Distribution]:
        """What tokens were drawn from (rejection mode), by the node that each hangs from."""
        return {n: each for n, each in enumerate(self.distributions) if each is not None}

    @property
    def confidences(self) -> tuple[float, ...]:
        """How likely each token is accepted, as far as the drafter knows. In greedy and coupled
        mode that is its probability, in rejection mode more (see ``confidence``)."""
        return tuple(map(confidence, self.tokens, self.choices, self.distributions))
