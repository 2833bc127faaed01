"""The pace at which prefixes are computed again that were evicted between two calls of an answer.

Each call of an answer leaves its prefix in cached blocks, where the next one finds it. If answers
under way need more blocks than there are, the least recently used ones are those of the answer that
calls next: with one answer too many, every call would compute its whole prefix again. So a call
whose prefix was evicted a moment ago waits while the answers go on that still have theirs. Once
these have made enough calls, or make none any more, one that waits takes its turn.

Nobody says that an answer has ended, or for how long its caller is away for a draft. So a replica
without work waits for as long as it takes to compute the prefix that waits: if no call comes, that
takes twice the time at most, and if one does, no prefix is evicted that is needed next. While
others work, a prefix waits no longer than three times as long as it takes.
"""

from __future__ import annotations

from math import inf
from typing import Final

TOKENS_PER_CALL: Final = 8
"""The tokens of prefixes that may be computed again for each call that has begun since then."""
A_MOMENT: Final = 1024
"""The number of calls within which an answer under way calls again, among hundreds of others."""
AWAY_S: Final = 0.05
"""The seconds without work that every replica waits for callers that are away: the time of a draft,
or of several."""
LONGEST_S: Final = 0.5
"""The seconds without work after which no replica waits any longer."""
TURN: Final = 3.0
"""A prefix is computed again at the latest when so many times its own time have passed since the
last one was begun, whoever works meanwhile."""
MEMORY: Final = 8
"""The number of latest forwards by which it is foreseen how long a prefix takes."""
MOST_EVICTED: Final = 1 << 16
"""The number of evicted blocks that are remembered, a million tokens: they take 10 MB."""


class RereadLater(Exception):
    """The call's prefix was evicted a moment ago, and it is not yet its turn to compute it again: a
    later attempt will succeed."""


class Rereads:
    """Tells evicted prefixes from new ones, and when the next one may be computed again."""

    def __init__(self) -> None:
        self.num_calls = self.num_rereads = 0
        """The calls that have begun, and those of them that computed a prefix again."""
        self._evicted: dict[bytes, int] = {}
        """The number of calls that had begun when a block was evicted, by its digest; the latest
        last."""
        self._due = 0
        self._num_put_off = 0
        """The tokens of the longest prefix that was put off when calls were last looked at."""
        self._num_computed = self._computed_s = 0.0
        """The tokens and seconds of about the latest ``MEMORY`` forwards that computed prefixes."""

    def evicted(self, digest: bytes) -> None:
        """Record that the block with this ``digest`` was evicted."""
        self._evicted.pop(digest, None)
        self._evicted[digest] = self.num_calls
        while len(self._evicted) > MOST_EVICTED:
            del self._evicted[next(iter(self._evicted))]

    def is_reread(self, digest: bytes) -> bool:
        """Return whether the block with this ``digest`` was evicted a moment ago."""
        return self.num_calls - self._evicted.get(digest, -A_MOMENT) < A_MOMENT

    def look_again(self) -> None:
        """Forget the prefixes that were put off, which all calls that wait tell again: some may
        have gone."""
        self._num_put_off = 0

    def puts_off(self, num_reread: int) -> bool:
        """Return whether it is too early to compute ``num_reread`` tokens of a prefix again."""
        self._num_put_off = max(self._num_put_off, num_reread)
        return self.num_calls < self._due

    def computed(self, num_tokens: int, seconds: float) -> None:
        """Record a forward that computed ``num_tokens`` of long prefixes, if any."""
        if num_tokens:
            kept = 1 - 1 / MEMORY
            self._num_computed = kept * self._num_computed + num_tokens
            self._computed_s = kept * self._computed_s + seconds

    @property
    def patience_s(self) -> float:
        """The seconds without work after which to ``hurry``: those that it takes to compute the
        prefix that was put off, within bounds."""
        return min(max(AWAY_S, self._reread_s), LONGEST_S)

    @property
    def turn_s(self) -> float:
        """The seconds from the beginning of a prefix that is computed again to that of the next,
        after which to ``hurry`` also while others work: they have most of the time. Infinite if
        none is put off."""
        return max(AWAY_S, TURN * self._reread_s) if self._num_put_off else inf

    @property
    def _reread_s(self) -> float:
        if not self._num_computed:
            return 0.0
        return self._num_put_off * self._computed_s / self._num_computed

    def hurry(self) -> None:
        """Let the next prefix be computed again at once."""
        self._due = self.num_calls

    def began(self, num_reread: int) -> None:
        """Record that a call has begun that computes ``num_reread`` tokens again."""
        self.num_calls += 1
        if num_reread:
            self.num_rereads += 1
            self._due = self.num_calls + num_reread // TOKENS_PER_CALL
