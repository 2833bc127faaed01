"""``specmesh plan``: the smallest simulated mesh that keeps a promise."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from specmesh.load.results.objectives import Objectives
from specmesh.load.workload.lengths import ConstantLength as Length
from specmesh.simulation.costs import Hop, MeshCosts
from specmesh.simulation.law import Law
from specmesh.simulation.models import AcceptanceRates
from specmesh.tools.plan.__main__ import app
from specmesh.tools.plan.predict import ReplicaCounts, Times, num_alone, predict
from specmesh.tools.plan.report import processes, recommended, table
from specmesh.tools.plan.search import SmallestMesh, plan
from specmesh.tools.plan.setting import PlanSetting, default_objectives

COSTS = MeshCosts(Law.fixed(40), (Law.fixed(4),))
SETTING = PlanSetting(
    costs=COSTS,
    rate=2.0,
    output=Length(20),
    objectives=default_objectives(COSTS),
    orchestrator_ms=2,
    further_ms=0.5,
)


def command(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_one_verifier_less_than_planned_breaks_the_promise():
    found = plan(SETTING, "autoregressive")
    assert found.best.meets(SETTING.attain)
    assert found.fewer.verifiers == found.best.verifiers - 1
    assert not found.fewer.meets(SETTING.attain)
    # Each answer keeps a verifier busy for 20 forwards.
    assert found.best.verifier_utilisation == pytest.approx(
        2.0 * 20 * 0.04 / found.best.verifiers, rel=1e-3
    )


def test_a_further_token_takes_an_orchestrator_less_than_a_request():
    found = predict(SETTING, "autoregressive", ReplicaCounts(4, 0))
    asked = found.verifications_per_s - found.further_tokens_per_s
    assert found.verifications_per_s == 2.0 * 20
    assert 2.0 <= asked < 2.0 * 3  # one or two for each answer, of 20 tokens
    expected = asked * 0.002 + found.further_tokens_per_s * 0.0005
    assert found.orchestrator_cores == pytest.approx(expected, rel=0.05)
    drafting = predict(SETTING, "speculative", ReplicaCounts(4, 4))
    assert drafting.orchestrator_cores == pytest.approx(drafting.verifications_per_s * 0.002, 0.05)


@pytest.mark.parametrize(("given", "further_ms"), [((), 0.3), (("--further-ms", "0.1"), 0.1)])
def test_the_command_counts_further_tokens_at_their_own_time(given, further_ms):
    load = ("--rate", "2", "--target-ms", "40", "--output", "64", "--strategy", "autoregressive")
    found = json.loads(command(*load, "--workers", "1", "--json", *given).stdout)
    cores = found["strategies"]["autoregressive"]["best"]["orchestrator_cores"]
    # Of 64 tokens, up to three in an answer have a request of their own, which takes 1 ms.
    assert 2 * 61 * further_ms / 1e3 < cores < 2 * (3 + 64 * further_ms) / 1e3


def test_speculation_needs_fewer_verifiers_and_is_recommended():
    autoregressive, speculative = (
        plan(SETTING, name) for name in ("autoregressive", "speculative")
    )
    assert autoregressive.best.drafters == 0
    assert speculative.best.drafters >= 1
    assert speculative.best.verifiers < autoregressive.best.verifiers
    assert recommended([autoregressive, speculative], drafter_cost=0.1) is speculative
    assert recommended([autoregressive, speculative], drafter_cost=100.0) is autoregressive


def test_heads_are_planned_without_a_drafter_and_take_time_at_the_verifier():
    with_heads = replace(SETTING, costs=replace(COSTS, heads=Law.fixed(1)))
    slow_heads = replace(SETTING, costs=replace(COSTS, heads=Law.fixed(20)))
    quick, slow, without = (plan(each, "heads") for each in (with_heads, slow_heads, SETTING))
    speculative = plan(with_heads, "speculative")
    assert quick.best.drafters == 0
    assert quick.alone.e2e_ms.p50 < slow.alone.e2e_ms.p50 < without.alone.e2e_ms.p50
    assert quick.alone.verify_s < slow.alone.verify_s
    # What a drafter says costs its time and the hops to it.
    assert quick.alone.e2e_ms.p50 < speculative.alone.e2e_ms.p50
    poor = plan(replace(with_heads, rates=AcceptanceRates(heads=0.2)), "heads")
    assert poor.alone.e2e_ms.p50 > quick.alone.e2e_ms.p50


def test_a_drafter_that_is_only_welcome_is_planned_for():
    found = plan(replace(SETTING, costs=replace(COSTS, heads=Law.fixed(1))), "heads-and-drafter")
    assert found.best.drafters >= 1
    assert found.best.draft_s > 0


def test_answers_that_share_forwards_need_fewer_verifiers():
    # Who comes while a forward runs waits for the next, so each token takes two of them.
    busy = replace(SETTING, rate=8.0, objectives=Objectives(tpot_s=0.1))
    alone, shared = (plan(replace(busy, batch=each), "autoregressive") for each in (1, 8))
    assert shared.best.verifiers < alone.best.verifiers


def test_a_promise_that_an_answer_alone_breaks_is_kept_by_no_mesh():
    found = plan(replace(SETTING, objectives=Objectives(tpot_s=0.001)), "speculative")
    assert found.best is None
    assert found.alone.attained == 0
    assert recommended([found], drafter_cost=0.1) is None


def test_one_unlucky_answer_alone_decides_nothing():
    for attain in (0.5, 0.9, 0.95):
        assert round(num_alone(attain) * (1 - attain)) >= 10
    assert num_alone(1.0) == 200


def test_a_great_load_is_planned_in_cells():
    great = replace(SETTING, rate=2.0 * 200)
    assert SETTING.cells == 1
    assert great.cells >= 5
    few, many = (
        plan(replace(great, rate=great.rate / great.cells), "autoregressive"),
        plan(great, "autoregressive"),
    )
    assert many.best.counts == few.best.counts
    assert many.best.verifiers == great.cells * few.best.verifiers
    assert many.best.verifications_per_s == pytest.approx(
        great.cells * few.best.verifications_per_s, rel=1e-3
    )


def test_a_mesh_that_cannot_keep_up_is_seen_as_such():
    found = predict(SETTING, "autoregressive", ReplicaCounts(1, 0))
    assert found.verifier_utilisation > 1
    assert found.attained < 0.5


def test_a_mesh_with_less_throughput_than_its_load_is_too_small_whatever_is_promised():
    # A verifier makes at most 64 tokens in 680 ms, the load has 320 in a second.
    costs = MeshCosts(Law.fixed(50, 10))
    patient = replace(
        *(SETTING,),
        costs=costs,
        rate=5.0,
        batch=64,
        output=Length(64),
        objectives=Objectives(e2e_s=300),
    )
    found = predict(patient, "autoregressive", ReplicaCounts(1, 0))
    assert found.attained > 0.9
    assert not found.is_stable
    assert predict(patient, "autoregressive", ReplicaCounts(6, 0)).is_stable


def test_answers_are_measured_while_others_keep_coming():
    costs = MeshCosts(Law.fixed(40, 2), verify_hop=Hop(1))
    full = replace(
        *(SETTING,),
        costs=costs,
        rate=10.0,
        batch=64,
        output=Length(128),
        objectives=Objectives(ttft_s=0.5, tpot_s=0.09),
    )
    found = predict(full, "autoregressive", ReplicaCounts(2, 0))
    # In a mesh that empties, tokens come sooner: 83 ms, and all within the objectives.
    assert found.tpot_ms.p95 > 90
    assert found.attained < 0.95


def test_the_same_setting_gives_the_same_prediction():
    counts = ReplicaCounts(3, 1)
    assert predict(SETTING, "speculative", counts) == predict(SETTING, "speculative", counts)


def test_times_of_nothing_are_zero():
    assert Times.of([]) == Times(0.0, 0.0, 0.0)


def test_the_command_says_what_to_take():
    done = command(
        *("--rate", "2", "--target-ms", "40", "--output", "20", "--strategy", "speculative"),
        *("--workers", "1", "--json"),
    )
    found = json.loads(done.stdout)
    assert done.exit_code == 0, done.output
    assert found["recommended"] == "speculative"
    best = found["strategies"]["speculative"]["best"]
    assert best["verifiers"] >= 1
    assert best["attained"] >= 0.95


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--rate", "0", "--target-ms", "40"), "--rate"),
        (("--rate", "1", "--target-ms", "nan"), "--target-ms"),
        (("--rate", "1", "--target-ms", "40", "--output", "many"), "'many' is not a length"),
        (("--rate", "1", "--target-ms", "40", "--slo", "speed=1s"), "'speed' is not an objective"),
        (("--rate", "1", "--target-ms", "40", "--strategy", "none"), "'none' is not one of"),
        (("--rate", "1", "--target-ms", "40", "--strategy", "heads"), "--heads-ms"),
        (("--rate", "1"), "--target-ms"),
    ],
)
def test_a_wrong_option_is_named(arguments, fault):
    done = command(*arguments)
    assert done.exit_code == 2
    assert fault in done.stderr


def test_as_many_orchestrators_as_their_work_fills_with_room_left():
    found = predict(SETTING, "autoregressive", ReplicaCounts(3, 0))
    assert processes(replace(found, orchestrator_cores=0.1)) == 1
    assert processes(replace(found, orchestrator_cores=0.71)) == 2
    assert processes(replace(found, orchestrator_cores=7.0)) == 10


def test_it_says_what_is_wrong_with_a_verifier_less():
    found = plan(SETTING, "autoregressive")
    lines = str(table(SETTING, [found], 0.1).caption).splitlines()
    assert any(line.startswith("autoregressive with 1 fewer: ") for line in lines)
    busy = replace(found.best, attained=1.0, is_stable=False)
    assert busy.fault(0.95) == "a role is over 95% busy, so queues grow"
    missed = replace(found.best, attained=0.5)
    assert missed.fault(0.95) == "only 50% of the answers are within the objectives"


def test_the_recommendation_says_by_what_it_is_the_cheapest_and_names_the_roles_it_has():
    found = plan(SETTING, "autoregressive")
    counts = f"verifiers: {found.best.verifiers}, orchestrators: 1; and one more of each"
    (line, *_) = str(table(SETTING, [found], 0.1).caption).splitlines()
    assert line.startswith("Cheapest by verifiers + drafters × 0.1 (orchestrators are not counted)")
    assert counts in line


@pytest.mark.parametrize(
    ("e2e_s", "orchestrator_cores", "is_named"),
    [(4.0, 0.1, True), (6.0, 0.1, False), (4.0, 7, False)],
)
def test_a_strategy_that_answers_clearly_sooner_for_few_more_processes_is_named(
    e2e_s, orchestrator_cores, is_named
):
    def times(seconds):
        return Times(seconds * 1e3, seconds * 1e3, seconds * 1e3)

    found = predict(SETTING, "autoregressive", ReplicaCounts(2, 0))
    cheapest = replace(found, e2e_ms=times(6.7), orchestrator_cores=4.0)
    other = replace(
        found,
        strategy="speculative",
        counts=ReplicaCounts(2, 2),
        e2e_ms=times(e2e_s),
        orchestrator_cores=orchestrator_cores,
    )
    planned = [SmallestMesh(each.strategy, each, None, each) for each in (cheapest, other)]
    told = str(table(SETTING, planned, 0.1).caption)
    sooner = "speculative answers in 4.00 s instead of 6.70 s, with 5 processes instead of 8"
    assert (sooner in told) is is_named
    assert ("answers in" in told) is is_named
