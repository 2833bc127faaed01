"""Models that wait instead of computing, including for each uncached token of a prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillingModels:
    """A target and a drafter. Times are per forward, and per uncached token in addition."""

    target_ms: float
    target_prefill_ms: float
    drafter_ms: float
    drafter_prefill_ms: float
    acceptance: float

    def verifier(self) -> Sequence[str]:
        """Return the arguments of a verifier."""
        return _waiting(self.target_ms, self.target_prefill_ms)

    def drafters(self) -> Sequence[Sequence[str]]:
        """Return the arguments of the one drafter."""
        waiting = _waiting(self.drafter_ms, self.drafter_prefill_ms)
        return [(*waiting, "--simulated-acceptance", str(self.acceptance))]


def _waiting(each_ms: float, prefill_ms: float) -> Sequence[str]:
    return (
        *("--backend", "simulated"),
        *("--simulated-each-ms", str(each_ms)),
        *("--simulated-prefill-ms", str(prefill_ms)),
    )
