"""``specmesh plan`` with what ``specmesh profile`` measured."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from specmesh.decoding.predict.closed_forms import expected_tokens
from specmesh.simulation.costs import MANY, Contention, Hop, Orchestrating
from specmesh.simulation.law import ForwardShape, Law
from specmesh.simulation.models import AcceptanceRates
from specmesh.tools.plan.__main__ import app
from specmesh.tools.plan.costs import GivenCosts, profiled_rates
from specmesh.tools.profile.file import Profile, ProfiledModel
from specmesh.tools.profile.rounds import ProfiledAcceptance, ProfiledCosts, Way

ONE = ForwardShape()
COSTS = ProfiledCosts(
    Law((1.0, 2.0, 8.0), (40.0, 40.4, 42.8)),
    (Law.fixed(3),),
    verify_hop=Hop(1.0),
    draft_hop=Hop(1.0),
    contention=Contention(2.0, 2.0),
)
PROFILE = Profile(
    made="2026-11-23T14:00:00+00:00",
    machine={},
    seed=1,
    seconds=60.0,
    models={"target": ProfiledModel("pycode", "abc", "float32", "transformers", 3, 1)},
    costs=COSTS,
    accuracy={},
    acceptance=[
        ProfiledAcceptance(
            *(Way("speculative", gamma), 0.0, expected_tokens(0.7, gamma), gamma),
            levels=(1.0,) * gamma,
        )
        for gamma in (2, 4)
    ],
    samples={},
)
LOAD = ("--rate", "2", "--output", "20", "--batch", "1", "--workers", "1", "--json")


def planned(tmp_path, profile, *arguments):
    file = tmp_path / "profile.json"
    file.write_text(profile.to_json())
    done = CliRunner().invoke(app, ["--profile", str(file), *LOAD, *arguments])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_plan_by_a_profile_is_that_by_the_same_numbers(tmp_path):
    strategies = ("--strategy", "autoregressive", "--strategy", "speculative")
    given = ("--target-ms", "40", "--target-token-ms", "0.4", "--acceptance", "0.7")
    found = planned(tmp_path, PROFILE, "--acceptance", "0.7", *strategies)
    expected = json.loads(CliRunner().invoke(app, [*LOAD, *given, *strategies]).stdout)
    for name, each in expected["strategies"].items():
        own = found["strategies"][name]
        assert own["best"]["verifiers"] == each["best"]["verifiers"]
        assert own["alone"]["e2e_ms"]["p50"] == pytest.approx(each["alone"]["e2e_ms"]["p50"])


def test_options_override_the_profile(tmp_path):
    def alone_ms(*arguments):
        """The first token of the target alone; those after it need no call."""
        found = planned(tmp_path, PROFILE, "--strategy", "autoregressive", *arguments)
        return found["strategies"]["autoregressive"]["alone"]["ttft_ms"]["p50"]

    assert alone_ms() == pytest.approx(41)
    assert alone_ms("--target-ms", "20") == pytest.approx(21)
    assert alone_ms("--hop-ms", "5") == pytest.approx(50)


def test_costs_that_are_given_replace_those_alone():
    assert GivenCosts().over(COSTS) == COSTS
    wider = GivenCosts(target_token_ms=2).over(COSTS).target
    assert (wider.ms(ONE), wider.ms(ForwardShape(tokens=4))) == (40, 46)
    first = GivenCosts(first_ms=100).over(COSTS).target
    assert first == replace(COSTS.target, prompt_ms=60)
    others = GivenCosts(drafter_ms=5, heads_ms=1, hop_ms=2).over(COSTS)
    assert others == replace(
        *(COSTS,),
        drafters=(Law.fixed(5),),
        heads=Law.fixed(1),
        verify_hop=Hop(4),
        draft_hop=Hop(4),
    )


def test_acceptance_is_the_rate_that_makes_the_rounds_of_the_profile():
    assert profiled_rates(PROFILE.acceptance, 0.0).drafter == pytest.approx(0.7, abs=0.03)
    hotter = [replace(each, temperature=0.8, tokens=1.2) for each in PROFILE.acceptance]
    assert profiled_rates([*PROFILE.acceptance, *hotter], 1.0).drafter < 0.3
    assert profiled_rates([], 0.0) == AcceptanceRates()
    heads = ProfiledAcceptance(Way("heads", 3, 4), 0.0, 2.0, 4)
    found = profiled_rates([*PROFILE.acceptance, heads], 0.0)
    assert found.drafter == profiled_rates(PROFILE.acceptance, 0.0).drafter
    assert 0.2 < found.heads < 0.7


def test_what_an_orchestrator_takes_delays_rounds_and_is_planned_for(tmp_path):
    costs = replace(COSTS, orchestrating=(Orchestrating("autoregressive", 9.0, 6.0),))
    found = planned(
        tmp_path, replace(PROFILE, costs=costs), "--strategy", "autoregressive", "--slo", "e2e=9s"
    )["strategies"]["autoregressive"]
    assert found["alone"]["ttft_ms"]["p50"] == pytest.approx(50)
    assert found["best"]["orchestrator_cores"] == pytest.approx(2 * 20 * 6e-3, rel=1e-2)
    assert costs.orchestrating_ms("dsi", MANY) == 6  # as the others in the mean


@pytest.mark.parametrize(
    ("change", "arguments", "fault"),
    [
        ({"version": 4}, (), "version"),
        ({}, ("--strategy", "heads"), "--heads-ms"),
        ({"acceptance": []}, (), "--acceptance"),
        (
            {
                "costs": json.loads(PROFILE.to_json())["costs"] | {"drafters": []},
                "acceptance": [],
            },
            (),
            "--drafter-ms",
        ),
    ],
)
def test_what_a_profile_lacks_is_named(tmp_path, change, arguments, fault):
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(json.loads(PROFILE.to_json()) | change))
    done = CliRunner().invoke(app, ["--profile", str(file), *LOAD, *arguments])
    assert done.exit_code == 2
    assert fault in done.stderr
