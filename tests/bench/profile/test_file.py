"""The file of a profile, and replays of known answers."""

import json
import math
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.trees.tree import TokenTree
from specmesh.simulation.costs import Contention, Cores, Hop, Orchestrating
from specmesh.simulation.law import ForwardShape, Law
from specmesh.tools.profile.__main__ import app
from specmesh.tools.profile.file import Accuracy, Profile, ProfiledModel
from specmesh.tools.profile.law import Sample
from specmesh.tools.profile.replay import known_verdict
from specmesh.tools.profile.rounds import ObservedRounds, ProfiledAcceptance, ProfiledCosts, Way

LAW = Law((1.0, 8.0), (5.0, 6.0), 0.1, 0.2, 0.3, 0.4)
HOP = Hop(1.0, 0.0, 0.0)
PROFILE = Profile(
    made="2026-11-23T14:00:00+00:00",
    machine={"cores": "2"},
    seed=1,
    seconds=60.0,
    models={"target": ProfiledModel("pycode", "abc", "float32", "transformers", 5, 1)},
    costs=ProfiledCosts(
        LAW,
        (LAW,),
        None,
        HOP,
        HOP,
        Contention(1.2, 1.1),
        (Orchestrating("tree", 2.0, 5.0),),
        {"target": Cores((0, 1), 2)},
        (ObservedRounds(Way("tree", 3, 8), 0.8, 8, 55.0, tries=6),),
    ),
    accuracy={"target": Accuracy(0.03, 0.1, 80, 20)},
    acceptance=[ProfiledAcceptance(Way("tree", 3, 8), 0.8, 2.0, 8.0, (2.0, 3.0, 3.0))],
    samples={"target": [Sample((ForwardShape(1.0, 4.0, 72.0),), 11.0)]},
)


def test_a_profile_is_read_as_it_was_written():
    read = Profile.from_json(PROFILE.to_json())
    assert read.costs == PROFILE.costs
    assert read.to_json() == PROFILE.to_json()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 1}, "version"),
        ({"costs": None}, "costs"),
        ({"seed": "many"}, "seed"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(change, field):
    with pytest.raises(InvalidField) as refused:
        Profile.from_json(json.dumps(json.loads(PROFILE.to_json()) | change))
    assert refused.value.field.startswith(field)
    with pytest.raises(InvalidField, match="JSON"):
        Profile.from_json("no")


LAW_FILE = json.loads(PROFILE.to_json())["costs"]["target"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"knots": [1.0]}, "at_knots"),
        ({"at_knots": [5.0]}, "at_knots"),
        ({"knots": [], "at_knots": []}, "knots"),
        ({"knots": [1.0, 1.0]}, "knots"),
        ({"at_knots": [5.0, math.nan]}, "at_knots.1"),
        ({"at_knots": [5.0, math.inf]}, "at_knots.1"),
        ({"at_knots": [0.0, 0.0]}, "at_knots"),
        ({"call_ms": -1.0}, "call_ms"),
    ],
)
def test_a_law_that_cannot_be_is_refused_by_the_name_of_its_field(change, field):
    edited = json.loads(PROFILE.to_json())
    edited["costs"]["target"] = LAW_FILE | change
    with pytest.raises(InvalidField) as refused:
        Profile.from_json(json.dumps(edited))
    assert refused.value.field == f"costs.target.{field}"


def test_hops_take_no_negative_time_and_the_models_have_a_target():
    edited = json.loads(PROFILE.to_json())
    edited["costs"]["draft_hop"]["base_ms"] = -50.0
    with pytest.raises(InvalidField, match=r"costs\.draft_hop\.base_ms"):
        Profile.from_json(json.dumps(edited))
    with pytest.raises(InvalidField, match=r"models\.target: is missing"):
        Profile.from_json(json.dumps(json.loads(PROFILE.to_json()) | {"models": {}}))


@pytest.mark.parametrize("field", ["rounds_per_s", "tries"])
def test_ways_without_rounds_or_tries_are_refused(field):
    edited = json.loads(PROFILE.to_json())
    edited["costs"]["observed"][0][field] = 0
    with pytest.raises(InvalidField) as refused:
        Profile.from_json(json.dumps(edited))
    assert refused.value.field == f"costs.observed.0.{field}"


@pytest.mark.parametrize(
    "path",
    [("acceptance", 0, "way"), ("costs", "observed", 0, "way"), ("costs", "orchestrating", 0)],
)
def test_strategies_that_do_not_exist_are_refused(path):
    edited = json.loads(PROFILE.to_json())
    place = edited
    for name in path:
        place = place[name]
    place["strategy"] = "trees"
    with pytest.raises(InvalidField) as refused:
        Profile.from_json(json.dumps(edited))
    assert refused.value.field == ".".join(map(str, (*path, "strategy")))
    assert refused.value.reason == "'trees' is not known"


@pytest.mark.parametrize("change", [{"levels": []}, {"levels": [1.0] * 4}, {"nodes": 0.0}])
def test_levels_are_those_of_the_drafts(change):
    edited = json.loads(PROFILE.to_json())
    edited["acceptance"][0] |= change
    with pytest.raises(InvalidField) as refused:
        Profile.from_json(json.dumps(edited))
    assert refused.value.field == "acceptance.0.levels"


CHANGES = {
    "costs.drafters": [],
    "costs.cores.target.threads": 0,
    "costs.cores.target.numbers": [],
    "costs.contention.drafter": 0,
    "costs.observed.0.streams": 100_000,
    "costs.observed.0.tries": 10**400,
    "costs.observed.0.way.lookahead": 5000,
    "costs.target.rest": [[0.5, 1.0]],
    "costs.target.call_msx": 1.0,
    "acceptance.0.nodes": 1e12,
    "acceptance.0.tokens": 50.0,
    "acceptance.0.way.width": 0,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_value_that_nobody_measures_is_refused_by_the_name_of_its_field(name):
    edited = json.loads(PROFILE.to_json())
    path = name.split(".")
    place = edited
    for each in path[:-1]:
        place = place[int(each) if isinstance(place, list) else each]
    place[path[-1]] = CHANGES[name]
    with pytest.raises(InvalidField) as refused:
        Profile.from_json(json.dumps(edited))
    expected = {"costs.drafters": "acceptance.0.way.strategy"}
    assert refused.value.field == expected.get(name, name)


def test_an_accuracy_that_could_not_be_told_is_left_out():
    unknown = replace(PROFILE, accuracy={"target": Accuracy(None, None, 1, 0)})
    assert Profile.from_json(unknown.to_json()).accuracy["target"].median is None


def test_no_choice_is_made_by_a_profile_without_acceptance(tmp_path):
    file = tmp_path / "profile.json"
    file.write_text(replace(PROFILE, acceptance=[], complete=False).to_json())
    done = CliRunner().invoke(app, ["choose", str(file)])
    assert done.exit_code == 2
    assert "acceptance: is empty" in " ".join(done.stderr.replace("\u2502", "").split())


def test_a_choice_by_a_profile_that_was_stopped_early_comes_with_a_warning(tmp_path):
    file = tmp_path / "profile.json"
    file.write_text(replace(PROFILE, complete=False).to_json())
    done = CliRunner().invoke(app, ["choose", str(file), "--json"])
    assert "stopped early" in done.stderr
    assert json.loads(done.stdout)["complete"] is False


@pytest.mark.parametrize(("median", "inaccurate"), [(0.1, {}), (0.35, {"target": 0.35})])
def test_a_choice_by_times_that_miss_by_much_comes_with_a_warning(tmp_path, median, inaccurate):
    file = tmp_path / "profile.json"
    unsure = replace(PROFILE, accuracy={"target": Accuracy(median, 0.5, 80, 20)})
    file.write_text(unsure.to_json())
    done = CliRunner().invoke(app, ["choose", str(file), "--json"])
    assert ("The times of target are off by 35%" in done.stderr) is bool(inaccurate)
    assert json.loads(done.stdout)["inaccurate"] == inaccurate


def test_a_choice_is_for_a_finite_temperature(tmp_path):
    file = tmp_path / "profile.json"
    file.write_text(PROFILE.to_json())
    done = CliRunner().invoke(app, ["choose", str(file), "--temperature", "inf"])
    assert done.exit_code == 2
    assert "--temperature" in done.stderr


def test_a_known_answer_judges_a_tree():
    tree = TokenTree((7, 8, 9), (0, 0, 2))
    verdict = known_verdict(tree, (8, 9, 4))
    assert (verdict.accepted_nodes, verdict.next_token, verdict.recovered) == ((2, 3), 4, False)
    verdict = known_verdict(tree, (8, 5))
    assert (verdict.accepted_nodes, verdict.next_token, verdict.recovered) == ((2,), 5, True)
    # The last token is the target's own, even if it was drafted.
    assert known_verdict(tree, (8,)).accepted_nodes == ()
