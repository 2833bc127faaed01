"""Strategies on the virtual clock: whatever the times and faults, the target's own answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.orchestrator.goals import GIVEN
from tests.simulation.meshes import mesh_of

from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal, Strategy
from specmesh.orchestrator.strategies.commands import (
    Assess,
    Cancel,
    Command,
    Commit,
    Draft,
    Finish,
    StopReason,
    TaskId,
    Verify,
)
from specmesh.orchestrator.strategies.events import Assessed, Capacity, Drafted, Event, Verified
from specmesh.simulation.clock import Clock
from specmesh.simulation.law import Law
from specmesh.simulation.mesh import Faults, MeshModel, SimulatedMesh
from specmesh.simulation.models import CertainModels
from specmesh.simulation.request import SimulatedRequest

VOCAB_SIZE = 12
PROMPT = (3, 1, 4)


def _goes_on(event: Event) -> bool:
    """Return whether the event's task has further events."""
    match event:
        case Drafted():
            return not event.last
        case Verified():
            return event.more
        case _:
            return isinstance(event, Assessed)


class Watched:
    """A strategy whose every step is held to what strategies promise."""

    def __init__(self, strategy: Strategy, *, steady: bool) -> None:
        self.ended = False
        self._strategy = strategy
        self._steady = steady
        """No replica comes or goes."""
        self._num_verifiers = 0
        self._under_way: set[TaskId] = set()
        self._verifying: set[TaskId] = set()
        self._given: set[int] = set()

    def start(self, capacity: Capacity) -> Sequence[Command]:
        self._num_verifiers = capacity.num_verifiers
        return self._watch(self._strategy.start(capacity))

    def handle(self, event: Event) -> Sequence[Command]:
        assert not self.ended
        if isinstance(event, Capacity):
            self._num_verifiers = event.num_verifiers
        elif event.task not in self._under_way:
            assert self._strategy.handle(event) == []
            return []
        elif not _goes_on(event):
            self._over(event.task)
        return self._watch(self._strategy.handle(event))

    def _over(self, task: TaskId) -> None:
        self._under_way.remove(task)
        self._verifying.discard(task)

    def _watch(self, commands: Sequence[Command]) -> Sequence[Command]:
        sent = False
        for command in commands:
            match command:
                case Cancel(task=task):
                    assert not sent, "what is cancelled must make room for what is sent"
                    self._over(task)
                case Draft(task=task) | Verify(task=task) | Assess(task=task):
                    assert task not in self._given
                    self._given.add(task)
                    sent = True
                    self._under_way.add(task)
                    if isinstance(command, Verify):
                        self._watch_parallelism(command)
                case Commit(token_ids=token_ids):
                    assert token_ids
                case Finish():
                    assert command is commands[-1]
                    self.ended = True
        return commands

    def _watch_parallelism(self, command: Verify) -> None:
        """Within the live replicas; but the next token is asked for although one has left."""
        if len(self._verifying) >= self._num_verifiers:
            assert not self._steady
            assert command.path == ()
        self._verifying.add(command.task)


def simulate(
    strategy: Strategy, goal: Goal, models: CertainModels, mesh: MeshModel, seed: int
) -> tuple[SimulatedRequest, SimulatedMesh]:
    """One request, to the end of everything that was set off."""
    clock = Clock()
    request, simulated = begin(clock, strategy, models, mesh, seed)
    clock.run(done=lambda: request.reason is not None)
    with pytest.raises(RuntimeError, match="no timers are left"):
        clock.run(done=lambda: False)
    return request, simulated


def begin(
    clock: Clock, strategy: Strategy, models: CertainModels, mesh: MeshModel, seed: int
) -> tuple[SimulatedRequest, SimulatedMesh]:
    """One request, begun."""
    simulated = SimulatedMesh(clock, mesh, seed)
    watched = Watched(strategy, steady=not mesh.faults.outages)
    request = SimulatedRequest(0, watched, models, simulated, PROMPT)
    request.start()
    return request, simulated


def target_only(target: SimulatedTarget, goal: Goal) -> tuple[list[int], StopReason]:
    state, tokens = target.after(target.start, PROMPT), list[int]()
    while len(tokens) < goal.max_tokens:
        tokens.append(target.token(state))
        state = target.after(state, tokens[-1:])
        if tokens[-1] in goal.end_of_text_ids:
            return tokens, StopReason.END_OF_TEXT
        if tokens[-1] in goal.stop_token_ids:
            return tokens, StopReason.STOP
    return tokens, StopReason.LENGTH


GOALS = st.builds(
    Goal,
    max_tokens=st.integers(1, 60),
    end_of_text_ids=st.sampled_from([frozenset(), frozenset(), frozenset({3})]),
    stop_token_ids=st.sampled_from([frozenset(), frozenset(), frozenset({5, 6})]),
    **GIVEN,
)
SECONDS = st.sampled_from([0.001, 0.003, 0.01, 0.05, 0.3])
MS = SECONDS.map(lambda seconds: 1e3 * seconds)
LAWS = st.one_of(
    st.builds(Law.fixed, MS, first_ms=st.none() | MS),
    st.builds(Law.drawn, st.dictionaries(MS, st.sampled_from([1.0, 5.0]), min_size=1)),
)


@st.composite
def all_models(draw: st.DrawFn) -> CertainModels:
    target = SimulatedTarget(draw(st.integers(0, 2**64 - 1)), VOCAB_SIZE)
    rates = draw(st.lists(st.sampled_from([0.0, 0.4, 0.8, 0.95, 1.0]), min_size=1, max_size=3))
    return CertainModels(
        target,
        tuple(SimulatedDrafter(target, rate, salt=salt) for salt, rate in enumerate(rates)),
        heads=SimulatedDrafter(target, rates[0], salt=len(rates)),
    )


@st.composite
def all_faults(draw: st.DrawFn, num_verifiers: int) -> Faults:
    rate = st.sampled_from([0.0, 0.3, 1.0])
    outages = []
    for replica in range(num_verifiers):
        if draw(st.booleans()):
            leaves, stays_away = draw(SECONDS), draw(SECONDS)
            outages.append((leaves, replica, False))
            if replica == 0 or draw(st.booleans()):  # one at least comes back
                outages.append((leaves + stays_away, replica, True))
    return Faults(
        draft_failure=draw(rate),
        late_answer=draw(rate),
        repeated_answer=draw(rate),
        max_delay_s=draw(st.sampled_from([0.0, 0.02, 0.5])),
        outages=tuple(outages) if draw(st.booleans()) else (),
    )


@st.composite
def scenes(draw: st.DrawFn) -> tuple[CertainModels, MeshModel]:
    models = draw(all_models())
    num_verifiers = draw(st.integers(1, 8))
    latencies = tuple(draw(LAWS) for _ in models.drafters)
    mesh = mesh_of(
        draw(LAWS),
        latencies,
        num_verifiers,
        hop_s=draw(st.sampled_from([0.0, 0.001, 0.02])),
        heads_s=draw(st.none() | SECONDS),
        faults=draw(all_faults(num_verifiers)),
    )
    return models, mesh


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=200)
@given(GOALS, scenes(), st.integers(0, 2**32))
def test_every_strategy_says_what_the_target_alone_would(strategy, goal, scene, seed):
    models, mesh = scene
    request, simulated = simulate(STRATEGIES[strategy](goal), goal, models, mesh, seed)
    assert (request.token_ids, request.reason) == target_only(models.target, goal)
    assert len(request.commit_times_s) == len(request.token_ids)
    assert request.commit_times_s == sorted(request.commit_times_s)
    for server in (*simulated.verifiers, *simulated.drafters):
        assert server.num_jobs == 0


@settings(max_examples=150)
@given(
    all_models(), st.integers(1, 60), st.none() | st.integers(1, 12), st.integers(1, 8), st.data()
)
def test_dsi_is_never_slower_than_the_target_alone(models, max_tokens, lookahead, sp, data):
    """Theorem 1, under its assumption that every drafter is faster. A single replica waits for
    drafts instead, unless the request has a lookahead."""
    assume(sp > 1 or lookahead is not None)
    goal = Goal(max_tokens, lookahead=lookahead)
    target_s = data.draw(SECONDS)
    drafters = [target_s * data.draw(st.floats(0.01, 1)) for _ in models.drafters]
    # Without hops: the target alone needs no call for each token, and so fewer of them.
    mesh = mesh_of(target_s, tuple(drafters), sp)
    times = []
    for name in ("dsi", "autoregressive"):
        request, _ = simulate(STRATEGIES[name](goal), goal, models, mesh, seed=0)
        times.append(request.ended_s)
    assert times[0] <= times[1] * (1 + 1e-9)


@pytest.mark.parametrize("acceptance", [0.0, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("ratio", [0.1, 0.4, 1.0])
@pytest.mark.parametrize("lookahead", [1, 5])
def test_dsi_is_on_average_not_slower_than_speculation(acceptance, ratio, lookahead):
    """Theorem 2, with as many replicas as it asks for. A single answer may be slower: a check
    that leaves at once covers less of a good draft than one that is waited for."""
    goal = Goal(max_tokens=20, lookahead=lookahead)
    mesh = mesh_of(1.0, (ratio,), num_verifiers=30)
    times = {"dsi": 0.0, "speculative": 0.0}
    for seed in range(40):
        target = SimulatedTarget(seed, VOCAB_SIZE)
        models = CertainModels(target, (SimulatedDrafter(target, acceptance),))
        for name in times:
            request, _ = simulate(STRATEGIES[name](goal), goal, models, mesh, seed=0)
            times[name] += request.ended_s
    assert times["dsi"] <= times["speculative"] * (1 + 1e-9)


@pytest.mark.parametrize("acceptance", [0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("ratio", [0.05, 0.2, 0.5])
def test_adaptive_lookahead_is_nearly_as_fast_as_the_best_fixed_one(acceptance, ratio):
    """The simulated drafter is equally sure of all its tokens: there is no more to be had."""
    mesh = mesh_of(1.0, (ratio,))
    target = SimulatedTarget(5, VOCAB_SIZE)
    models = CertainModels(target, (SimulatedDrafter(target, acceptance),))

    def takes_longer(lookahead: int, limit_s: float) -> bool:
        """Whether one that is fixed takes longer; how much longer is of no interest."""
        clock = Clock()
        strategy = STRATEGIES["speculative"](Goal(max_tokens=2_000, lookahead=lookahead))
        request, _ = begin(clock, strategy, models, mesh, seed=0)
        clock.run(done=lambda: request.reason is not None or clock.now > limit_s)
        return clock.now > limit_s

    goal = Goal(max_tokens=2_000)
    adaptive, _ = simulate(STRATEGIES["speculative"](goal), goal, models, mesh, 0)
    for lookahead in (*range(1, 9), 10, 12, 16, 24):
        assert takes_longer(lookahead, adaptive.ended_s / 1.08), lookahead


def seconds_of(name: str, token_s: float) -> float:
    """For an answer where the drafter's second choice is right half the time that its first
    isn't."""
    mesh = mesh_of(Law.fixed(1e3, 1e3 * token_s), (0.05,))
    target = SimulatedTarget(5, VOCAB_SIZE)
    models = CertainModels(target, (SimulatedDrafter(target, 0.6, runner_up=0.5),))
    goal = Goal(max_tokens=600)
    return simulate(STRATEGIES[name](goal), goal, models, mesh, 0)[0].ended_s


def test_heads_that_know_as_much_as_a_drafter_save_its_hops():
    """A round is one call, there and back, in the place of two."""
    target = SimulatedTarget(5, VOCAB_SIZE)
    drafter = SimulatedDrafter(target, 0.8)
    models = CertainModels(target, (drafter,), heads=drafter)
    mesh = mesh_of(1.0, (0.05,), hop_s=0.1, heads_s=0.05)
    goal = Goal(max_tokens=600)
    heads, tree, alone = (
        simulate(STRATEGIES[name](goal), goal, models, mesh, 0)[0].ended_s
        for name in ("heads", "tree", "autoregressive")
    )
    assert heads < 0.95 * tree
    assert heads < 0.6 * alone  # which needs hardly any call


def test_a_drafter_that_works_meanwhile_makes_heads_quicker():
    """One that knows more than they do, and one that knows as much: it errs elsewhere."""
    target = SimulatedTarget(5, VOCAB_SIZE)
    mesh = mesh_of(Law.fixed(1000, 10), (0.1,), hop_s=0.05, heads_s=0.02)
    goal = Goal(max_tokens=600)

    def seconds(name: str, acceptance: float) -> float:
        drafters = (SimulatedDrafter(target, acceptance),)
        models = CertainModels(target, drafters, heads=SimulatedDrafter(target, 0.7, salt=1))
        return simulate(STRATEGIES[name](goal), goal, models, mesh, 0)[0].ended_s

    alone = seconds("heads", 0.7)
    assert seconds("heads-and-drafter", 0.9) < 0.85 * alone
    assert seconds("heads-and-drafter", 0.7) < 0.98 * alone
    assert seconds("heads-and-drafter", 0.0) < 1.02 * alone


def test_a_tree_pays_where_tokens_cost_little_and_is_a_chain_where_they_cost_much():
    assert seconds_of("tree", 0.0) < 0.8 * seconds_of("speculative", 0.0)
    assert seconds_of("tree", 0.2) < 1.05 * seconds_of("speculative", 0.2)
