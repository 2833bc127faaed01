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
from typing import Final, NamedTuple

MEANWHILE: Final = frozenset({"dsi", "exhaustive", "heads-and-drafter"})
"""The strategies whose drafter works while the target does, and so may slow it down."""
FEWEST_TOKENS: Final = 16
"""The number of tokens from which on a speed is known, if each answer has one."""
TIMED_EACH: Final = 8
"""The tokens of each answer that are enough to time the target alone, which takes about as long for
each of them."""
ROUNDS: Final = 3
"""The rounds that a timing costs each answer: the target's current work, one that is timed, and one
for which a draft begins anew."""
SHORTEST, LONGEST = 8.0, 128.0
"""The time between two timings over what a timing costs, taken as ``FEWEST_TOKENS`` in all or
``ROUNDS`` of each answer: until a strategy does as expected, and once it has done so for long. It
is longer in proportion to the speed-up, since the more is gained the less likely it is none, and
the more a timing costs."""
APART: Final = 2.0
"""The factor on ``SHORTEST`` where no drafter has the host of a verifier, whose processor or GPU it
would compete for."""
SURPRISE: Final = 0.1
"""The difference from what is known, as a logarithm, from which on a speed is a surprise."""
CHANCE: Final = 3.0
"""The share that chance explains of such a difference for a speed measured over a single token. It
falls with the root of their number: texts are easier or harder to draft."""
LEAST, MOST = 0.25, 1.25
"""The bounds of a correction: speeds are noisy, and what is better than expected is chosen
anyway."""
HALF_LIFE_S: Final = 30.0
"""The time after which a correction counts half: drafters and machines change, and a strategy that
was slow is tried again."""
ALIKE: Final = 1.5
"""The factor by which the loads of a replica may differ for speeds to be compared."""
_ASSUMED_TOKENS: Final = 128
"""The weight, in tokens, of the former correction, also before anything was measured: few tokens
are of a single text, which says little about the next."""


class _MeasuredSpeed:
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

    def is_enough(self, num_answers: float, of_each: float = math.inf) -> bool:
        """Return whether the speed of so many concurrent answers is known, for which ``of_each``
        tokens of each would be enough."""
        enough = min(FEWEST_TOKENS, of_each * max(1.0, num_answers))
        return self.num_tokens >= max(num_answers, enough)

    def num_timings(self, num_answers: float) -> float:
        """Return the number of timings of the target alone, by so many concurrent answers, that
        would have taken as long, over the speed-up."""
        speed_up = math.exp(self.expected)
        timing = max(FEWEST_TOKENS, ROUNDS * num_answers) * speed_up
        return self.num_tokens / timing / speed_up


class _Speeds:
    """The rounds of all answers in some stretch of time, by strategy."""

    def __init__(self) -> None:
        self.by_strategy: dict[str, _MeasuredSpeed] = {}
        self._began, self._until = math.inf, 0.0

    def of(self, strategy: str, seconds: float, now: float) -> _MeasuredSpeed:
        """Return the speed of ``strategy``, for a round of some ``seconds`` that ends ``now``."""
        self._began, self._until = min(self._began, now - seconds), now
        return self.by_strategy.setdefault(strategy, _MeasuredSpeed())

    @property
    def num_answers(self) -> float:
        """The mean number of concurrent answers."""
        seconds = math.fsum(each.seconds for each in self.by_strategy.values())
        return seconds / (self._until - self._began)

    @property
    def num_timings(self) -> float:
        """The sum of those of all strategies."""
        num_answers = self.num_answers
        return math.fsum(each.num_timings(num_answers) for each in self.by_strategy.values())


class _Known(NamedTuple):
    """The logarithm of a strategy's correction, when it was found, the number of timings that the
    time until the next one is worth, and whether the strategy could be compared at all."""

    log: float
    found_at: float
    period: float
    measured: bool


class MeasuredSpeeds:
    """Compares the strategies that answers choose with the target alone, which it lets them use
    for that from time to time."""

    def __init__(self) -> None:
        self.times_alone = False
        """True while all answers are to use the target alone, so that it can be timed."""
        self._alone, self._drafting = _Speeds(), _Speeds()
        """Rounds of the latest timing, and those with drafts since then."""
        self._known: dict[str, _Known] = {}
        self._now = 0.0
        self._shortest = SHORTEST

    def correction(self, strategy: str) -> float:
        """Return the factor on the speed that is expected of ``strategy``. If that is unknown it is
        1; for one of ``MEANWHILE``, if all that are known of these are below 1, the highest of
        them."""
        return math.exp(self._log_of(strategy))

    def has_measured(self, strategy: str) -> bool:
        """Return whether ``strategy`` has been compared with the target alone."""
        known = self._known.get(strategy)
        return known is not None and known.measured

    def add(
        self,
        strategy: str,
        num_tokens: int,
        seconds: float,
        *,
        expected: float | None,
        load: float,
        shares_host: bool,
        now: float,
    ) -> None:
        """Record that an answer got ``num_tokens`` in ``seconds`` up to ``now``.

        ``expected`` is the speed that was expected of ``strategy`` over that of the target alone,
        without any correction; None stands for the target alone. ``load`` is the number of answers
        that share a replica or wait for it. ``shares_host`` is as in ``Capacity``.
        """
        self._now = now
        self._shortest = SHORTEST if shares_host else APART * SHORTEST
        if seconds <= 0:
            return
        if self.times_alone:
            if expected is None:
                alone = self._alone.of(strategy, seconds, now)
                alone.add(num_tokens, seconds, load, 1.0)
                # Answers may have ended, and others of a crowd are still in the same round.
                num_answers = min(self._drafting.num_answers, 2 * self._alone.num_answers)
                if alone.is_enough(num_answers, TIMED_EACH):
                    self._compare(alone)
        elif expected is not None:
            drafting = self._drafting.of(strategy, seconds, now)
            drafting.add(num_tokens, seconds, load, expected)
            known = self._known.get(strategy)
            if self._drafting.num_timings >= (known.period if known else self._shortest):
                self.times_alone, self._alone = True, _Speeds()

    def _compare(self, alone: _MeasuredSpeed) -> None:
        """Learn the corrections of the strategies since the former timing, and end this one."""
        num_answers = self._drafting.num_answers
        for strategy, speed in self._drafting.by_strategy.items():
            if not speed.is_enough(num_answers):
                continue
            if 1 / ALIKE <= speed.load / alone.load <= ALIKE:
                speed_up = speed.tokens_per_s / alone.tokens_per_s
                self._learn(strategy, math.log(speed_up) - speed.expected, speed.num_tokens)
            else:
                self._postpone(strategy)
        self.times_alone, self._drafting = False, _Speeds()

    def _learn(self, strategy: str, log: float, num_tokens: int) -> None:
        """Learn from a correction that ``num_tokens`` have shown."""
        period, former = self._shortest, self._log_of(strategy)
        if known := self._known.get(strategy):
            difference = abs(log - former)
            if difference <= SURPRISE:
                period = min(LONGEST, 2 * known.period)
            elif difference <= CHANCE / math.sqrt(num_tokens):
                period = known.period
        log = former + (log - former) * num_tokens / (num_tokens + _ASSUMED_TOKENS)
        log = min(max(log, math.log(LEAST)), math.log(MOST))
        self._known[strategy] = _Known(log, self._now, period, measured=True)

    def _postpone(self, strategy: str) -> None:
        """Time the target less often, since ``strategy`` could not be compared with it."""
        period = self._known[strategy].period if strategy in self._known else self._shortest
        self._known[strategy] = _Known(
            *(self._log_of(strategy), self._now, min(LONGEST, 2 * period)),
            measured=self.has_measured(strategy),
        )

    def _log_of(self, strategy: str) -> float:
        """Return the logarithm of the correction of ``strategy``."""
        if (known := self._known.get(strategy)) is not None:
            return known.log * math.exp2((known.found_at - self._now) / HALF_LIFE_S)
        kin = MEANWHILE & self._known.keys() if strategy in MEANWHILE else ()
        return min(0.0, max(map(self._log_of, kin), default=0.0))
