"""What a changed mesh would have done to an answer, against a simulation of the changed mesh."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from tests.simulation.meshes import mesh_of

from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.options import StrategyOptions
from specmesh.simulation.law import ForwardShape
from specmesh.simulation.models import CertainModels
from specmesh.simulation.replay.costs import target_law
from specmesh.simulation.replay.recorded import Forward, RecordedGuess, RecordedRequest
from specmesh.simulation.replay.what_if import (
    NUM_RUNS,
    Trials,
    changes_of,
    lookahead,
    more_verifiers,
    quicker_drafter,
    quicker_heads,
    quicker_target,
    strategy,
    what_if,
)
from specmesh.simulation.run import simulate

TARGET_S, DRAFTER_S, HOP_S, OUTSIDE_S = 0.04, 0.004, 0.0005, 0.02
NUM_TOKENS = 60
TARGET = SimulatedTarget(seed=3)
DRAFTER = SimulatedDrafter(TARGET, acceptance=0.8)
PROMPT = (1, 2, 3)


def simulated_s(name, options, *, num_verifiers=2, target_s=TARGET_S, drafter_s=DRAFTER_S):
    """How long an answer takes on a mesh whose every number is known."""
    mesh = mesh_of(target_s, (drafter_s,), num_verifiers, HOP_S)
    goal = Goal(NUM_TOKENS, **asdict(options))
    models = CertainModels(TARGET, (DRAFTER,))
    return simulate(STRATEGIES[name](goal), models, mesh, prompt=PROMPT).duration_s


def guesses():
    """What the drafter guesses along the answer."""
    found, state = {}, TARGET.after(TARGET.start, PROMPT)
    for position in range(NUM_TOKENS):
        token = TARGET.token(state)
        first, second = DRAFTER.choices(state)
        found[position] = RecordedGuess(first == token, second == token)
        state = TARGET.after(state, (token,))
    return found


def trace_of(name, options):
    """What a trace of that answer tells."""
    return RecordedRequest(
        strategy=name,
        options=options,
        num_tokens=NUM_TOKENS,
        guesses=guesses(),
        verifications=(Forward(5, TARGET_S, first=True), Forward(5, TARGET_S, first=False)),
        drafter_level_s=(DRAFTER_S,),
        hop_s=HOP_S,
        num_verifiers=2,
        speculation_s=simulated_s(name, options),
        outside_s=OUTSIDE_S,
    )


FOUR = StrategyOptions(lookahead=4)
CASES = [
    (more_verifiers(2), lambda name: simulated_s(name, FOUR, num_verifiers=4)),
    (lookahead(2), lambda name: simulated_s(name, StrategyOptions(lookahead=2))),
    (quicker_drafter(2), lambda name: simulated_s(name, FOUR, drafter_s=DRAFTER_S / 2)),
    (quicker_target(4), lambda name: simulated_s(name, FOUR, target_s=TARGET_S / 4)),
    (strategy("autoregressive"), lambda _: simulated_s("autoregressive", StrategyOptions())),
]


@pytest.mark.parametrize("name", ["speculative", "dsi"])
@pytest.mark.parametrize(("change", "really"), CASES, ids=[change.name for change, _ in CASES])
def test_a_change_is_predicted_as_it_would_have_been(name, change, really):
    found = what_if(trace_of(name, FOUR), (change,))
    assert found.error == pytest.approx(0, abs=1e-9)
    (prediction,) = found.predictions
    assert prediction.duration_s == pytest.approx(OUTSIDE_S + really(name))
    assert prediction.gain == pytest.approx(1 - prediction.duration_s / found.measured_s)


def answered_by_heads_s(strategy="heads", heads_s=0.002, target_s=TARGET_S, **options):
    """How long an answer takes with heads that guess as the drafter does."""
    mesh = mesh_of(target_s, (), 1, HOP_S, heads_s=heads_s, heads_depth=5)
    goal = Goal(NUM_TOKENS, **options)
    models = CertainModels(TARGET, (), heads=DRAFTER)
    return simulate(STRATEGIES[strategy](goal), models, mesh, prompt=PROMPT).duration_s


@pytest.mark.parametrize(
    ("change", "really"),
    [
        (quicker_heads(4), lambda: answered_by_heads_s(heads_s=0.0005, width=8)),
        (quicker_target(4), lambda: answered_by_heads_s(target_s=TARGET_S / 4, width=8)),
        (lookahead(2), lambda: answered_by_heads_s(lookahead=2, width=8)),
        (strategy("autoregressive"), lambda: answered_by_heads_s("autoregressive")),
    ],
    ids=["heads", "target", "depth", "alone"],
)
def test_a_change_of_what_heads_answered_is_predicted(change, really):
    request = replace(
        trace_of("dsi", StrategyOptions(width=8)),
        strategy="heads",
        drafter_level_s=(),
        heads_level_s=(0.002, 0.002),
        heads_depth=5,
        num_verifiers=1,
        speculation_s=answered_by_heads_s(width=8),
    )
    found = what_if(request, (change,))
    # Trees are grown by what heads make of their guesses, of which a trace tells nothing.
    assert found.error == pytest.approx(0, abs=0.04)
    assert found.predictions[0].duration_s == pytest.approx(OUTSIDE_S + really(), rel=0.04)
    names = [each.name for each in changes_of(request)]
    assert {"heads 2 times as fast", "γ = 4", "strategy autoregressive"} <= {*names}
    assert not {"γ = 6", "strategy dsi", "1 more verifier"} & {*names}


def test_what_the_simulation_gets_wrong_in_both_alike_does_not_count():
    slow = trace_of("dsi", FOUR)
    slow = replace(slow, speculation_s=2 * slow.speculation_s)
    found = what_if(slow, (more_verifiers(2),))
    assert found.simulated_s == pytest.approx(OUTSIDE_S + slow.speculation_s / 2)
    assert found.error < -0.4
    (prediction,) = found.predictions
    assert prediction.duration_s == pytest.approx(
        OUTSIDE_S + 2 * simulated_s("dsi", FOUR, num_verifiers=4)
    )


def test_trials_try_all_changes_once_before_any_again_and_may_end_at_any_time():
    request, changes = trace_of("dsi", FOUR), (more_verifiers(2), lookahead(2), quicker_drafter(2))
    whole = what_if(request, changes)
    assert (whole.num_runs, whole.num_planned_runs, whole.left_out) == (NUM_RUNS, NUM_RUNS, ())
    trials = Trials(request, changes)
    assert trials.step()
    assert (trials.result().num_runs, trials.result().left_out) == (1, changes)
    assert trials.step()
    assert [each.change for each in trials.result().predictions] == [changes[0]]
    while trials.num_done < 2 * (1 + len(changes)):
        assert trials.step()
    twice = trials.result()
    assert (twice.num_runs, twice.left_out) == (2, ())
    # All is known of these models, so that no seed changes anything.
    for few, many in zip(twice.predictions, whole.predictions, strict=True):
        assert few.duration_s == pytest.approx(many.duration_s)


def test_guesses_that_the_trace_lacks_are_drawn_at_the_rate_of_the_others():
    whole = trace_of("speculative", FOUR)
    half = replace(whole, guesses={at: whole.guesses[at] for at in range(0, NUM_TOKENS, 2)})
    assert what_if(half, ()).error == pytest.approx(0, abs=0.25)


def test_an_answer_without_drafts_could_only_have_had_a_quicker_target():
    alone = replace(trace_of("autoregressive", StrategyOptions()), drafter_level_s=())
    assert [change.name for change in changes_of(alone)] == ["a target 2 times as fast"]


def test_changes_are_named_for_people():
    names = [change.name for change in changes_of(trace_of("dsi", FOUR))]
    assert {"1 more verifier", "2 more verifiers", "γ = 3", "a drafter 2 times as fast"} <= {*names}
    assert "γ = 4" not in names
    assert "strategy dsi" not in names


def test_more_nodes_take_as_much_longer_as_they_did_in_the_trace():
    forwards = [Forward(nodes, 0.010 + 0.001 * nodes, first=False) for nodes in (1, 5, 9)]
    forwards.append(Forward(5, 0.055, first=True))
    law = target_law(forwards)
    assert law.ms(ForwardShape(tokens=3)) == pytest.approx(13)
    assert law.prompt_ms == pytest.approx(40)
