"""Models that wait instead of computing, also for each token of a prefix that is not cached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillingModels:
    """A target and a drafter. Times are of a forward, and of a token of a prefix more."""

    target_ms: float
    target_prefill_ms: float
    drafter_ms: float
    drafter_prefill_ms: float
    acceptance: float

    def verifier(self) -> Sequence[str]:
        """Arguments of a verifier."""
        return _waiting(self.target_ms, self.target_prefill_ms)

    def drafters(self) -> Sequence[Sequence[str]]:
        """Arguments of the one drafter."""
        waiting = _waiting(self.drafter_ms, self.drafter_prefill_ms)
        return [(*waiting, "--simulated-acceptance", str(self.acceptance))]


def _waiting(each_ms: float, prefill_ms: float) -> Sequence[str]:
    return (
        *("--backend", "simulated"),
        *("--simulated-each-ms", str(each_ms)),
        *("--simulated-prefill-ms", str(prefill_ms)),
    )
