"""The tokens that may be found for a verification together with those of others."""

from __future__ import annotations

from dataclasses import dataclass, field

from specmesh.decoding.noise import Purpose, stream_key
from specmesh.decoding.sampling import AcceptanceMode, Sampling


@dataclass(slots=True)
class OwnTokens:
    """The tokens with the highest scores after the nodes of a tree below a prefix of ``position``
    tokens: of their logits if ``greedy``, else with the noise of coupled mode.

    ``found`` are those, by node, that were found when the logits were computed. There need not be
    any: a verification finds them by itself.
    """

    greedy: bool
    temperature: float
    seed: int
    position: int
    found: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, sampling: Sampling, position: int) -> OwnTokens | None:
        """Return what to find for a request; None where it would not help, because other logits
        than the model's count, or few of them, or the draft counts as well."""
        greedy = sampling.mode is AcceptanceMode.GREEDY
        if sampling.changes_logits or sampling.mode is AcceptanceMode.REJECTION:
            return None
        if not greedy and not sampling.cuts_at_most_nucleus:
            return None
        return cls(greedy, sampling.temperature, sampling.seed, position)

    def key_at(self, depth: int) -> int:
        """Return the key of the noise for the token ``depth`` tokens below the prefix."""
        return stream_key(self.seed, self.position + depth, Purpose.COUPLED)

    def below(self, node: int, depth: int) -> OwnTokens:
        """Return the same for a tree below ``node``, which is ``depth`` tokens below the prefix:
        what was found after ``node`` is found after that tree's node 0."""
        found = {0: self.found[node]} if node in self.found else {}
        return OwnTokens(self.greedy, self.temperature, self.seed, self.position + depth, found)
