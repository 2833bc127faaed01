"""What became of one request, as its reader saw it."""

from __future__ import annotations

from dataclasses import dataclass, field

from specmesh.bench.chaos.asks import Ask
from specmesh.client import FinishReason


@dataclass(slots=True)
class ChaosAnswer:
    """Times are in seconds since the beginning; ``unchecked`` are places in ``token_ids``.

    ``failure`` is empty unless the stream raised; then it is the error's class and reason.
    """

    stream: int
    number: int
    ask: Ask
    began_s: float
    ended_s: float = 0.0
    token_ids: list[int] = field(default_factory=list)
    unchecked: set[int] = field(default_factory=set)
    text: str = ""
    gap: int = 0
    """Tokens missing between two chunks, all in all; negative if some came twice."""
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
    """In which the reader waited for tokens."""
    paused_at_s: float = 0.0
    """When it began."""

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return self.finish_reason is not None
