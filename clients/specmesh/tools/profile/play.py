"""The simulation of rounds of several streams.

Replicas batch everything that waits when a forward begins; services that work at the same time
share their common cores (processor sharing, with equal parts, Kleinrock 1967); a drafter and a
verifier also slow each other down; and an orchestrator serves one stream at a time. This has no
closed form for several streams, so it is simulated on a virtual clock, with mean rounds.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from specmesh.tools.profile.costs import Cores, Drafting, MeshCosts, ProfiledAcceptance
from specmesh.tools.profile.law import Law, MeasuredForward

_ROUNDS: Final = 40
"""Counted rounds of each stream."""
_WARM_UP: Final = 8
"""Uncounted rounds of each stream, until streams have spread."""
_JITTER: Final = 0.1
"""Relative variation of forwards, without which streams would stay in step forever."""


class _At(StrEnum):
    ORCHESTRATOR = "orchestrator"
    DRAFTER = "drafter"
    TARGET = "target"
    HEADS = "heads"
    """Heads run on the target's engine, before its forwards."""
    WAY = "way"
    """The stream is in transit; no service works on it."""


_DRAFTING = (_At.DRAFTER, _At.HEADS)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of a round. ``amount`` is the tokens of a forward, otherwise milliseconds; with
    ``starts`` a draft begins."""

    at: _At
    amount: float
    starts: bool = False


@dataclass(slots=True)
class _Engine:
    """A service that works on one batch at a time; ``left_ms`` excludes contention."""

    waiting: deque[tuple[int, _Step]] = field(default_factory=deque)
    batch: list[int] = field(default_factory=list)
    left_ms: float = 0.0


def rounds_per_s(
    acceptance: ProfiledAcceptance,
    costs: MeshCosts,
    streams: int,
    context: float,
    orchestrator_ms: float,
) -> float:
    """Return the total rounds per second of ``streams`` answers at a mean ``context`` in tokens, if
    an orchestrator takes ``orchestrator_ms`` per round."""
    steps = tuple(_steps(acceptance, costs, orchestrator_ms))
    return _Play(steps, costs, streams, context).run()


class _Play:
    def __init__(
        self, steps: Sequence[_Step], costs: MeshCosts, streams: int, context: float
    ) -> None:
        self._steps = steps
        self._costs = costs
        self._streams = streams
        self._context = context
        self._next = [0] * streams
        self._engines = {each: _Engine() for each in (_At.ORCHESTRATOR, _At.DRAFTER, _At.TARGET)}
        self._known: dict[tuple[_At, MeasuredForward], float] = {}
        """Cache of the times of forwards, of which few differ."""
        self._rates: dict[frozenset[_At], dict[_At, float]] = {}
        """Cache of speeds, by the set of busy services."""
        self._under_way: list[tuple[float, int]] = []
        """Arrival times of streams in transit."""
        self._dice = random.Random(0)  # noqa: S311 - a prediction must repeat
        self._now = 0.0
        self._num_rounds = 0

    def run(self) -> float:
        """Return the total rounds per second of all streams."""
        for stream in range(self._streams):
            self._enter(stream)
        self._until(_WARM_UP * self._streams)
        began, before = self._now, self._num_rounds
        self._until((_WARM_UP + _ROUNDS) * self._streams)
        rounds = self._num_rounds - before
        return rounds / (self._now - began) * 1e3

    def _until(self, num_rounds: int) -> None:
        while self._num_rounds < num_rounds:
            for at, engine in self._engines.items():
                if not engine.batch and engine.waiting:
                    self._begin(at, engine)
            self._advance()

    def _enter(self, stream: int) -> None:
        step = self._steps[self._next[stream]]
        if step.at in _DRAFTING and self._dice.random() >= step.amount:
            self._proceed(stream)  # On average below one token: some rounds don't reach this level.
            return
        if step.at is _At.WAY:
            self._under_way.append((self._now + step.amount, stream))
            return
        at = _At.TARGET if step.at is _At.HEADS else step.at
        self._engines[at].waiting.append((stream, step))

    def _begin(self, at: _At, engine: _Engine) -> None:
        """Begin a batch: one stream at the orchestrator; all steps of heads, if there are any; or
        all streams that need a forward."""
        taken = list(engine.waiting)
        if at is _At.ORCHESTRATOR:
            taken = taken[:1]
        elif any(step.at is _At.HEADS for _, step in taken):
            taken = [each for each in taken if each[1].at is _At.HEADS]
        engine.waiting = deque(each for each in engine.waiting if each not in taken)
        engine.batch = [stream for stream, _ in taken]
        engine.left_ms = self._duration_ms([step for _, step in taken])

    def _duration_ms(self, steps: Sequence[_Step]) -> float:
        at, calls, amount = steps[0].at, len(steps), sum(step.amount for step in steps)
        jitter = 1 + self._dice.uniform(-_JITTER, _JITTER)
        if at is _At.ORCHESTRATOR:
            return amount * jitter
        law, hop = _law(at, self._costs)
        context = 0.0 if at is _At.HEADS else self._context
        forward = MeasuredForward(calls, max(amount, 1.0), context)
        if (at, forward) not in self._known:
            self._known[at, forward] = law.ms(forward)
        # Calls are judged one after the other, on the engine's thread.
        shared_ms = hop * (calls - 1)
        start_ms = law.start_ms if any(step.starts for step in steps) else 0.0
        return (start_ms + self._known[at, forward]) * jitter + shared_ms

    def _advance(self) -> None:
        """Advance the time to the next thing that ends."""
        busy = frozenset(at for at, engine in self._engines.items() if engine.batch)
        if busy not in self._rates:
            self._rates[busy] = _rates(busy, self._costs)
        rates = self._rates[busy]
        ends = [self._engines[at].left_ms / rate for at, rate in rates.items()]
        ends += [due - self._now for due, _ in self._under_way]
        passed = max(0.0, min(ends))
        self._now += passed
        arrived = [stream for due, stream in self._under_way if due <= self._now]
        self._under_way = [each for each in self._under_way if each[0] > self._now]
        for at, rate in rates.items():
            engine = self._engines[at]
            engine.left_ms -= passed * rate
            if engine.left_ms <= 1e-9:  # noqa: PLR2004 - rounding
                arrived += engine.batch
                engine.batch = []
        for stream in arrived:
            self._proceed(stream)

    def _proceed(self, stream: int) -> None:
        self._next[stream] += 1
        if self._next[stream] == len(self._steps):
            self._next[stream] = 0
            self._num_rounds += 1
        self._enter(stream)


def _rates(busy: frozenset[_At], costs: MeshCosts) -> dict[_At, float]:
    """Return the speed of each busy service, as a share of its full speed."""
    rates = {at: core_share(at, busy, costs.cores) for at in busy}
    if {_At.DRAFTER, _At.TARGET} <= busy:
        rates[_At.DRAFTER] = min(rates[_At.DRAFTER], 1 / costs.contention.drafter)
        rates[_At.TARGET] = min(rates[_At.TARGET], 1 / costs.contention.target)
    return rates


def core_share(role: str, busy: Collection[str], cores: Mapping[str, Cores]) -> float:
    """Return the share of its full speed at which ``role`` works while all of ``busy`` (itself
    included) do."""
    if role not in cores:
        return 1.0
    rivals = [
        cores[other]
        for other in busy
        if other in cores and set(cores[other].numbers) & set(cores[role].numbers)
    ]
    room = set[int]().union(*(each.numbers for each in rivals))
    return min(1.0, len(room) / sum(each.threads for each in rivals))


def _law(at: _At, costs: MeshCosts) -> tuple[Law, float]:
    """Return the law of the forwards there, and the additional time of each further call."""
    if at is _At.TARGET:
        return costs.target, costs.verify_hop.call_ms
    if at is _At.HEADS:
        assert costs.heads is not None
        return costs.heads, 0.0
    assert costs.drafter is not None
    return costs.drafter, 0.0


def _steps(
    acceptance: ProfiledAcceptance, costs: MeshCosts, orchestrator_ms: float
) -> Iterator[_Step]:
    """Yield the steps of a round. A drafter drafts before the verification, heads after it."""
    yield _Step(_At.ORCHESTRATOR, orchestrator_ms + acceptance.strategy_ms)
    if acceptance.levels and acceptance.way.drafting is Drafting.DRAFTER:
        assert costs.draft_hop is not None
        yield _Step(_At.WAY, costs.draft_hop.ms(acceptance.nodes))
        yield from _draft(_At.DRAFTER, acceptance.levels)
    yield _Step(_At.WAY, costs.verify_hop.ms(acceptance.nodes))
    yield _Step(_At.TARGET, 1 + acceptance.nodes)
    if acceptance.way.drafting is Drafting.HEADS:
        yield from _draft(_At.HEADS, acceptance.levels)


def _draft(at: _At, levels: Sequence[float]) -> Iterator[_Step]:
    for number, tokens in enumerate(levels):
        yield _Step(at, tokens, starts=number == 0)
