"""One answer, as its reader saw it."""

from __future__ import annotations

from dataclasses import dataclass, field

from specmesh.bench.chaos.requests import ChaosRequest
from specmesh.client import FinishReason


@dataclass(slots=True)
class ChaosAnswer:
    """The answer to one request. Times are in seconds since the phase began.

    ``unchecked`` has the positions in ``token_ids`` that the target did not verify. ``failure`` is
    the class and reason of the error that the stream raised, empty if it raised none.
    """

    stream: int
    number: int
    request: ChaosRequest
    began_s: float
    ended_s: float = 0.0
    token_ids: list[int] = field(default_factory=list)
    unchecked: set[int] = field(default_factory=set)
    text: str = ""
    gap: int = 0
    """Number of tokens missing between two chunks; negative if some came twice."""
    session_id: str = ""
    num_prompt_tokens: int = 0
    num_resumes: int = 0
    resumable: bool = False
    finish_reason: FinishReason | None = None
    cancelled: bool = False
    failure: str = ""
    message: str = ""
    last_token_s: float | None = None
    longest_pause_s: float = 0.0
    """Longest time for which the reader waited for tokens."""
    paused_at_s: float = 0.0
    """Start of that pause."""

    @property
    def finished(self) -> bool:
        """Return whether the answer is complete."""
        return self.finish_reason is not None
