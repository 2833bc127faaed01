"""The record of each request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RequestOutcome(StrEnum):
    """The outcome of a request."""

    ANSWERED = "answered"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Cancelled by the workload, after some tokens."""


@dataclass(frozen=True, slots=True)
class MeshWork:
    """The cost of an answer to the mesh, from its statistics; other servers report none."""

    num_verify_calls: int
    num_target_tokens: int
    num_drafted_tokens: int
    num_verified_tokens: int
    num_accepted_tokens: int
    num_wasted_tokens: int


@dataclass(slots=True)
class Observation:
    """One request. Times are in seconds from the start of the run.

    ``due_s`` is when it was due, from which latencies count, and ``sent_s`` when it was sent.
    ``first_s`` and ``last_s`` are when the first and the last chunk came, None if there was none.
    """

    conversation: int
    turn: int
    variation: int
    due_s: float
    sent_s: float
    first_s: float | None = None
    last_s: float | None = None
    ended_s: float = 0.0
    outcome: RequestOutcome = RequestOutcome.FAILED
    reason: str = ""
    """Machine-readable reason of a failure, such as OVERLOADED, UNAVAILABLE or HTTP_429."""
    retry_after_s: float | None = None
    """Delay before the next request that the server asked for when it refused this one."""
    num_prompt_tokens: int | None = None
    num_output_tokens: int = 0
    is_counted: bool = False
    """True if the server counted ``num_output_tokens``; otherwise each chunk counts as one."""
    num_chunks: int = 0
    num_resumes: int = 0
    text_digest: str = ""
    """Digest of an answer in 16 hexadecimal digits; answers with equal digests have the same
    text."""
    work: MeshWork | None = None
    trace_id: str = ""
    part: int = 0
    """Number of the generator that sent it."""

    @property
    def ttft_s(self) -> float | None:
        """Return the time to first token, from when the request was due."""
        return None if self.first_s is None else self.first_s - self.due_s

    @property
    def e2e_s(self) -> float:
        """Return the time to the end, from when the request was due."""
        return self.ended_s - self.due_s

    @property
    def tpot_s(self) -> float | None:
        """Return the time per output token after the first, (e2e − TTFT) / (tokens − 1); None for
        fewer than two tokens."""
        if self.first_s is None or self.num_output_tokens < 2:  # noqa: PLR2004
            return None
        return (self.ended_s - self.first_s) / (self.num_output_tokens - 1)
