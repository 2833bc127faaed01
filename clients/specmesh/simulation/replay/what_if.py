"""Changes that would have shortened an answer: the same request again, with one thing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import fmean

from specmesh.orchestrator.strategies import LOSSLESS, STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.simulation.mesh import MeshModel
from specmesh.simulation.replay.costs import costs_of
from specmesh.simulation.replay.models import ReplayedModels
from specmesh.simulation.replay.recorded import RecordedRequest
from specmesh.simulation.run import simulate

NUM_RUNS = 8
"""Number of simulations of each change; whatever the trace leaves open is drawn again in each."""
LOOKAHEADS = (1, 2, 3, 4, 6, 8, 12)
OTHER_STRATEGIES = tuple(
    name
    for name in LOSSLESS
    if name not in {"exhaustive", "auto"} and not STRATEGIES[name].needs_heads
)
"""Strategies to compare. The trace of another strategy does not tell the cost of drafting from
every outcome, or what heads would have guessed; ``auto`` runs one of these."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One possible change, such as "two more verifiers"."""

    name: str
    apply: Callable[[RecordedRequest], RecordedRequest]


@dataclass(frozen=True, slots=True)
class WhatIfPrediction:
    """The predicted time of the answer with ``change``, in seconds."""

    change: Alternative
    duration_s: float
    gain: float
    """Share of the measured time that is saved; negative if the answer takes longer."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The predictions for an answer, best first. ``simulated_s`` is the simulated time of the
    unchanged answer; ``error`` is by which share of the measured time that is too long."""

    measured_s: float
    simulated_s: float
    error: float
    predictions: tuple[WhatIfPrediction, ...]
    num_runs: int
    """Number of simulations of the unchanged answer."""
    num_planned_runs: int
    """Number of simulations that were planned."""
    left_out: tuple[Alternative, ...]
    """Changes that were never simulated."""


class Trials:
    """Simulations of ``request``, unchanged and with each of ``changes``, by default all of
    ``changes_of``.

    Each is simulated once, then again with the next seed. The measured time is scaled by the ratio
    of the simulated ones, so that errors common to both cancel.
    """

    def __init__(
        self, request: RecordedRequest, changes: tuple[Alternative, ...] | None = None
    ) -> None:
        self._request = request
        self._changes = changes_of(request) if changes is None else changes
        self._requests = [request, *(change.apply(request) for change in self._changes)]
        self._speculation_s: list[list[float]] = [[] for _ in self._requests]
        self.num_done = 0
        """Number of simulations so far."""

    def step(self) -> bool:
        """Simulate once; return whether there is more to simulate. An exception during it, such as
        KeyboardInterrupt, leaves the result unchanged."""
        seed, which = divmod(self.num_done, len(self._requests))
        self._speculation_s[which].append(_simulated_s(self._requests[which], seed))
        self.num_done += 1
        return self.num_done < NUM_RUNS * len(self._requests)

    def result(self) -> WhatIf:
        """Return the result of the simulations so far, of which there must be at least one."""
        as_it_was, *changed = self._speculation_s
        tried = list(zip(self._changes, changed, strict=True))
        found = (self._prediction(change, times_s) for change, times_s in tried if times_s)
        measured_s = self._request.duration_s
        simulated_s = self._request.outside_s + fmean(as_it_was)
        return WhatIf(
            measured_s=measured_s,
            simulated_s=simulated_s,
            error=simulated_s / measured_s - 1,
            predictions=tuple(sorted(found, key=lambda each: each.duration_s)),
            num_runs=len(as_it_was),
            num_planned_runs=NUM_RUNS,
            left_out=tuple(change for change, times_s in tried if not times_s),
        )

    def _prediction(self, change: Alternative, times_s: Sequence[float]) -> WhatIfPrediction:
        # Both sides use the same seeds.
        ratio = fmean(times_s) / fmean(self._speculation_s[0][: len(times_s)])
        duration_s = self._request.outside_s + self._request.speculation_s * ratio
        return WhatIfPrediction(change, duration_s, 1 - duration_s / self._request.duration_s)


def what_if(request: RecordedRequest, changes: tuple[Alternative, ...] | None = None) -> WhatIf:
    """Run all simulations of ``Trials``."""
    trials = Trials(request, changes)
    while trials.step():
        pass
    return trials.result()


def changes_of(request: RecordedRequest) -> tuple[Alternative, ...]:
    """Return the changes to try on ``request``."""
    return tuple(_changes(request))


def more_verifiers(number: int) -> Alternative:
    """Add ``number`` replicas of the target."""
    return Alternative(
        f"{number} more verifier{'s' if number > 1 else ''}",
        lambda request: replace(request, num_verifiers=request.num_verifiers + number),
    )


def lookahead(gamma: int) -> Alternative:
    """Let verifications cover ``gamma`` draft tokens."""
    return Alternative(
        f"γ = {gamma}",
        lambda request: replace(request, options=replace(request.options, lookahead=gamma)),
    )


def strategy(name: str) -> Alternative:
    """Use another strategy, with its own defaults."""
    return Alternative(
        f"strategy {name}",
        lambda request: replace(request, strategy=name, options=type(request.options)()),
    )


def quicker_drafter(factor: float) -> Alternative:
    """Make the drafter ``factor`` times as fast, with the same guesses."""
    return Alternative(
        f"a drafter {factor:g} times as fast", partial(_quicker_drafter, factor=factor)
    )


def quicker_heads(factor: float) -> Alternative:
    """Make the heads ``factor`` times as fast, with the same guesses."""
    return Alternative(f"heads {factor:g} times as fast", partial(_quicker_heads, factor=factor))


def quicker_target(factor: float) -> Alternative:
    """Make the target ``factor`` times as fast."""
    return Alternative(
        f"a target {factor:g} times as fast", partial(_quicker_target, factor=factor)
    )


def _quicker_drafter(request: RecordedRequest, factor: float) -> RecordedRequest:
    levels = tuple(seconds / factor for seconds in request.drafter_level_s)
    return replace(request, drafter_level_s=levels)


def _quicker_heads(request: RecordedRequest, factor: float) -> RecordedRequest:
    levels = tuple(seconds / factor for seconds in request.heads_level_s)
    return replace(request, heads_level_s=levels)


def _quicker_target(request: RecordedRequest, factor: float) -> RecordedRequest:
    forwards = (replace(each, seconds=each.seconds / factor) for each in request.verifications)
    return replace(request, verifications=tuple(forwards))


def _changes(request: RecordedRequest) -> Iterator[Alternative]:
    yield quicker_target(2)
    lookaheads = [gamma for gamma in LOOKAHEADS if gamma != request.options.lookahead]
    if request.heads_level_s:
        yield quicker_heads(2)
        yield from (lookahead(gamma) for gamma in lookaheads if gamma <= request.heads_depth)
        yield strategy("autoregressive")  # A drafter's guesses are unknown.
    if not request.drafter_level_s:
        return
    yield quicker_drafter(2)
    yield more_verifiers(1)
    yield more_verifiers(2)
    if "lookahead" in STRATEGIES[request.strategy].options:
        yield from map(lookahead, lookaheads)
    yield from (strategy(name) for name in OTHER_STRATEGIES if name != request.strategy)


def _simulated_s(request: RecordedRequest, seed: int) -> float:
    """Return the seconds of the strategy's work."""
    goal = Goal(request.num_tokens, **asdict(request.options))
    mesh = MeshModel(costs_of(request), request.num_verifiers, heads_depth=request.heads_depth)
    models = ReplayedModels(request.num_tokens, request.guesses, seed)
    return simulate(STRATEGIES[request.strategy](goal), models, mesh, seed=seed).duration_s
