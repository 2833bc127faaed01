"""The speeds of strategies as they turn out, beside those that are expected of them.

What a strategy yields is foretold from the times of forwards and drafts and from rates of
acceptance. Whatever the forecast leaves out, above all that a drafter may take the cores on which
the target computes, is found by a comparison: now and then all answers that choose their strategy
let the target work alone for some tokens, and the speeds of the strategies just before are divided
by that.

They have to do so together. An answer that stops drafting while others go on still waits for
forwards that their drafts slow down, so drafts would seem to cost it nothing.
"""

from __future__ import annotations

import math
from typing import Final

FEWEST_TOKENS: Final = 16
"""The number of tokens from which on a speed is known."""
FIRST_TOKENS: Final = 128
"""The number of tokens with drafts after which the target is timed first."""
SHORTEST, LONGEST = 8.0, 64.0
"""The time between two timings over that of a timing: as long as strategies surprise, and at most,
once they do as expected."""
SURPRISE: Final = 0.1
"""The difference from what is known, as a logarithm, from which on a speed is a surprise."""
LEAST, MOST = 0.25, 1.25
"""The bounds of a correction: speeds are noisy, and what is better than expected is chosen
anyway."""
HALF_LIFE_S: Final = 30.0
"""The time after which a correction counts half: drafters and machines change, and a strategy that
was slow is tried again."""
ALIKE: Final = 1.5
"""The factor by which the loads of a replica may differ for speeds to be compared."""
_ASSUMED_TOKENS: Final = 32
"""The tokens that the former correction counts for."""


class _Tally:
    """The tokens that answers got with one strategy, and the seconds that they took."""

    def __init__(self) -> None:
        self.num_tokens = 0
        self.seconds = 0.0
        self._load = self._expected = 0.0

    def add(self, num_tokens: int, seconds: float, load: float, expected: float) -> None:
        self.num_tokens += num_tokens
        self.seconds += seconds
        self._load += seconds * load
        self._expected += seconds * math.log(expected)

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds

    @property
    def load(self) -> float:
        """The mean load of the replicas."""
        return self._load / self.seconds

    @property
    def expected(self) -> float:
        """The logarithm of the speed that was expected, over that of the target alone."""
        return self._expected / self.seconds

    @property
    def is_enough(self) -> bool:
        """True if there are enough tokens to know a speed, a few of each answer."""
        return self.seconds > 0 and self.num_tokens >= max(FEWEST_TOKENS, 2 * self.load)


class MeasuredSpeeds:
    """Compares the strategies that answers choose with the target alone, which it lets them use
    for that from time to time."""

    def __init__(self) -> None:
        self.times_alone = False
        """True while all answers are to use the target alone, so that it can be timed."""
        self._alone = _Tally()
        self._drafting: dict[str, _Tally] = {}
        """Since the latest timing."""
        self._corrections: dict[str, tuple[float, float]] = {}
        """The logarithm of each strategy's correction, and when it was found."""
        self._period = SHORTEST
        self._now = 0.0

    def correction(self, strategy: str, kin: frozenset[str] = frozenset()) -> float:
        """Return the factor on the speed that is expected of ``strategy``, 1 if nothing is known.
        It is assumed to be half as wrong as the best of its ``kin``, if it was never used itself
        and they were."""
        if strategy in self._corrections:
            return math.exp(self._log_of(strategy))
        known = [self._log_of(each) for each in kin if each in self._corrections]
        return math.exp(max(known) / 2) if known else 1.0

    def add(
        self,
        strategy: str,
        num_tokens: int,
        seconds: float,
        *,
        expected: float | None,
        load: float,
        now: float,
    ) -> None:
        """Record that an answer got ``num_tokens`` in ``seconds`` up to ``now``.

        ``expected`` is the speed that was expected of ``strategy`` over that of the target alone,
        without any correction; None stands for the target alone. ``load`` is the number of answers
        that share a replica or wait for it.
        """
        self._now = now
        if seconds <= 0:
            return
        if self.times_alone:
            if expected is None:
                self._alone.add(num_tokens, seconds, load, 1.0)
                if self._alone.is_enough:
                    self._compare()
        elif expected is not None:
            tally = self._drafting.setdefault(strategy, _Tally())
            tally.add(num_tokens, seconds, load, expected)
            if self._is_due:
                self.times_alone, self._alone = True, _Tally()

    @property
    def _is_due(self) -> bool:
        if not self._alone.seconds:
            return sum(each.num_tokens for each in self._drafting.values()) >= FIRST_TOKENS
        drafting_s = sum(each.seconds for each in self._drafting.values())
        return drafting_s >= self._period * self._alone.seconds

    def _compare(self) -> None:
        """Learn the corrections of the strategies since the former timing, and end this one."""
        surprises = False
        for strategy, tally in self._drafting.items():
            alike = 1 / ALIKE <= tally.load / self._alone.load <= ALIKE
            if not (tally.is_enough and alike):
                continue
            found = math.log(tally.tokens_per_s / self._alone.tokens_per_s) - tally.expected
            former = self._log_of(strategy)
            surprises |= abs(found - former) > SURPRISE
            weight = tally.num_tokens / (tally.num_tokens + _ASSUMED_TOKENS)
            log = former + weight * (found - former)
            log = min(max(log, math.log(LEAST)), math.log(MOST))
            self._corrections[strategy] = log, self._now
        self._period = SHORTEST if surprises else min(LONGEST, 2 * self._period)
        self.times_alone, self._drafting = False, {}

    def _log_of(self, strategy: str) -> float:
        log, found_at = self._corrections.get(strategy, (0.0, self._now))
        return log * 0.5 ** ((self._now - found_at) / HALF_LIFE_S)
