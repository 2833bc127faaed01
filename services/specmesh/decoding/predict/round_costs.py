"""The times by which strategies decide how much to draft for a round."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from specmesh.decoding.predict.returns import LONGEST_SHARE, SLACK

_QUICK: Final = LONGEST_SHARE / SLACK
"""A call that is back within this share of a period is in time for the next forward, since the
replica waits that long for those that are about to return (``Returns``)."""
PAYS: Final = 1.05
"""The factor by which a drafter's drafts must be expected to be faster than the target alone: what
they cost is easily underestimated, and others are better off without them."""
_SEVERAL: Final = 1.5
"""Answers that are held from which on there usually are several."""
SURE: Final = 0.995
"""The highest acceptance rate that is believed."""
_EARLY: Final = 0.1
"""For a later forward a draft must be ready earlier by this share of a period."""


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """The times of one round in seconds.

    A verification takes ``target_s`` as drafts usually are, and ``alone_s`` if no call has any
    draft tokens. The target alone saves ``saved_s`` of that where it decodes on without a call for
    each token. Drafting another level with one token takes ``level_s``, and each further token of
    a level ``sibling_s``. A call takes ``hop_s`` besides, a draft waits for ``queue_s``, and one
    whose drafter has not read the prefix takes ``reading_s`` besides. One more draft token takes
    ``token_s`` in its verification: the sum of the times by which it delays this answer and all
    others that wait for the same replica. The first one takes ``first_s`` besides: a small CPU is
    quickest at forwards of a single row, and a GPU is flat up to some number of rows, so that the
    first tokens are cheaper than later ones.

    A replica that answers share begins a forward every ``period_s``; 0 stands for one that begins
    whenever this answer asks. A draft that is not ready when the other answers are waits for the
    next forward, for which these return after ``alone_s`` at the earliest.

    If ``num_waiting`` answers (1 or more) wait for a replica one after the other, a draft takes no
    time as long as the others keep the replica busy: then only forwards count, those of all
    (the asymptotic bounds of closed queueing networks, Denning and Buzen 1978). While a level is
    drafted, ``num_held`` answers wait for it, this one included: all that share a replica whose
    heads draft. A call takes ``rejoining_s`` from others that decode on without calls, since the
    next forward waits for it. What more than ``most_tokens`` draft tokens take is not known yet.
    """

    target_s: float
    level_s: float
    token_s: float
    alone_s: float
    saved_s: float = 0.0
    period_s: float = 0.0
    first_s: float = 0.0
    hop_s: float = 0.0
    queue_s: float = 0.0
    reading_s: float = 0.0
    sibling_s: float = 0.0
    num_waiting: float = 1.0
    num_held: float = 1.0
    rejoining_s: float = 0.0
    most_tokens: float = math.inf

    @property
    def decoding_s(self) -> float:
        """The time of a token of the target alone."""
        return self.alone_s - self.saved_s

    def of_width(self, num_tokens: float) -> RoundCosts:
        """Return the times of drafts with ``num_tokens`` in each level, as if these were one."""
        level_s = self.level_s + (num_tokens - 1) * self.sibling_s
        return replace(self, level_s=level_s, token_s=num_tokens * self.token_s)

    def explored_s(self, depth: int = 1) -> float:
        """Return the time that a draft of ``depth`` levels with one token each takes from this
        answer and others, none of which draft, so that its drafter has the prefix to read."""
        held_s = (self.num_held - 1) * depth * self.level_s + 2 * self.rejoining_s
        own_s = self.reading_s + self.round_s(depth) - self.decoding_s
        return max(0.0, own_s) + held_s

    @property
    def holds_others(self) -> bool:
        """True if other answers usually wait while a level is drafted."""
        return self.num_held >= _SEVERAL

    def marginal_s(self, depth: int) -> float:
        """Return the time that another level with one token, in a draft of ``depth`` levels, takes
        from this answer and others. A draft that waits for the next forward, or while the replica
        works for others, takes none itself."""
        waits = self.period_s and not self._is_quick(depth)
        hidden = self.wait_s(depth) < self.verification_s(depth) * self._others_share
        return self.token_s if waits or hidden else self.token_s + self.level_s

    def wait_s(self, num_levels: int) -> float:
        """Return the time from the beginning of a draft until it can be verified."""
        drafting_s = num_levels * self.level_s
        if num_levels:
            drafting_s += self.hop_s + self.queue_s
        if not self.period_s or self._is_quick(num_levels):
            return drafting_s
        period_s = max(self.period_s, self.alone_s)
        return period_s * math.ceil(drafting_s / period_s + _EARLY)

    def _is_quick(self, num_levels: int) -> bool:
        """Return whether a draft is ready for the next forward of a shared replica."""
        return num_levels * self.level_s <= self._quick_s

    @property
    def _quick_s(self) -> float:
        """The time that a draft's levels may take to be ready for the next forward: between both
        are the hops of the draft and of a verification."""
        return _QUICK * self.period_s - 2 * self.hop_s - self.queue_s

    def best_depth(self, alpha: float, limit: int, least_gain: float = 1.0) -> int:
        """Return the number of levels, up to ``limit``, with the most tokens in a given time if
        ``alpha`` of them are accepted: Theorem 3.8 of Leviathan et al. 2023 with these costs. 0 if
        none is faster than the target alone by more than the factor ``least_gain``."""
        if not self.alone_s:
            return 0
        best, best_rate = 0, least_gain / self.decoding_s
        tokens = another = 1.0
        for depth in range(1, int(min(limit, self.most_tokens)) + 1):
            another *= alpha
            tokens += another
            rate = tokens / self.round_s(depth)
            if rate > best_rate:
                best, best_rate = depth, rate
        return best

    def round_s(self, depth: int) -> float:
        """Return the time of a round of ``depth`` levels with one token each."""
        verification_s = self.verification_s(depth)
        hidden_s = verification_s * self._others_share
        return verification_s + max(0.0, self.wait_s(depth) - hidden_s)

    @property
    def _others_share(self) -> float:
        """The share of a verification in which the replica works for others."""
        return 1 - 1 / self.num_waiting

    def verification_s(self, num_tokens: float) -> float:
        """Return the time of a verification of ``num_tokens`` draft tokens."""
        return self.alone_s + bool(num_tokens) * self.first_s + num_tokens * self.token_s

    def shared_lookahead(self, alpha: float) -> int:
        """Return the lookahead of DSI that takes the least time from answers that share forwards, 0
        if none do and each verification takes its own answer's time alone.

        Each verification has a row more than it has draft tokens. If it has k of them, that takes
        ``token_s`` / k for each; and the next rejection, of which there is one in 1 / (1 - alpha)
        tokens, is known later by half of the time in which they are drafted. The sum of both is
        least where they are equal, as in the formula of the economic order quantity.
        """
        if not self.period_s or not self.level_s:
            return 0
        return int(math.sqrt(2 * self.token_s / ((1 - min(alpha, SURE)) * self.level_s)))

    def can_gain(self, alpha: float) -> bool:
        """Return whether there is a draft that, if it took no time, would yield more tokens in a
        given time than the target alone."""
        first_s = self.first_s + self.saved_s
        if alpha * self.decoding_s <= self.token_s + min(0.0, first_s):
            return False
        if first_s <= 0 or alpha >= 1:
            return True
        # The n-th token yields alpha^n and takes the share `token` of the time of a token alone.
        token = self.token_s / self.decoding_s
        num = math.floor(math.log(token) / math.log(alpha)) if token else math.inf
        gained = alpha * (1 - alpha**num) / (1 - alpha) - (num * token if token else 0.0)
        return gained * self.decoding_s > first_s

    def deepest(self, depth: int, limit: int) -> int:
        """Return the number of levels, up to ``limit``, that a draft may have which is worth
        ``depth`` of them: as long as its drafter is sure, all that are ready at the same time."""
        limit = int(min(limit, self.most_tokens))
        if not self.period_s or not self.level_s:
            return limit
        in_time_s = self._quick_s
        if not self._is_quick(depth):
            in_time_s = self.wait_s(depth) - _EARLY * self.period_s - self.hop_s - self.queue_s
        return max(depth, min(limit, int(in_time_s / self.level_s)))
