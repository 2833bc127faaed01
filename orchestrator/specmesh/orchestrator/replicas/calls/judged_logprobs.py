"""Log-probabilities of an answer's tokens, taken from the verifications that judged them.

Strategies don't handle log-probabilities. When a position was verified several times, a strategy
commits the token of one verification; this module finds a verification that followed exactly the
tokens of the answer and gave the same token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.logprobs import Logprobs
from specmesh.orchestrator.strategies.commands import Verify


@dataclass(frozen=True, slots=True)
class _Judged:
    """``tokens`` from position ``origin`` on, the last of which have ``logprobs``."""

    origin: int
    tokens: tuple[int, ...]
    logprobs: tuple[Logprobs, ...]

    @property
    def end(self) -> int:
        return self.origin + len(self.tokens)

    def at(self, position: int) -> Logprobs | None:
        """Return the log-probabilities at ``position``; None if there are none."""
        index = position - self.end  # counted from the end, so below 0
        return self.logprobs[index] if -len(self.logprobs) <= index < 0 else None


class JudgedLogprobs:
    """Keeps the log-probabilities of verifications until their tokens are committed.

    ``num_top`` is the number of likeliest tokens that the request asks for; ``position`` is that of
    the first token to be committed.
    """

    def __init__(self, num_top: int, position: int) -> None:
        self.num_top = num_top
        self._position = position
        self._text: list[int] = []
        self._judged: list[_Judged] = []

    def learn(self, num_committed: int, command: Verify, verdict: Verdict) -> None:
        """Keep the ``verdict`` on ``command``, issued with ``num_committed`` tokens committed."""
        accepted = command.tree.tokens_on(verdict.accepted_nodes)
        tokens = (*command.path, *accepted, verdict.next_token)
        self._judged.append(_Judged(num_committed, tokens, verdict.logprobs))

    def commit(self, token_ids: Sequence[int]) -> list[Logprobs]:
        """Commit tokens and return their log-probabilities.

        Raises ``LookupError`` for a token that no verification has given."""
        found = []
        for token in token_ids:
            self._text.append(token)
            found.append(self._latest())
        end = self._position + len(self._text)
        self._judged = [judged for judged in self._judged if judged.end > end]
        return found

    def _latest(self) -> Logprobs:
        """Return the log-probabilities of the latest committed token."""
        end = self._position + len(self._text)
        for judged in self._judged:
            logprobs = judged.at(end - 1)
            since = tuple(self._text[judged.origin - self._position :])
            if logprobs is not None and judged.tokens[: len(since)] == since:
                return logprobs
        raise LookupError(f"no verification has given the token at position {end - 1}")
