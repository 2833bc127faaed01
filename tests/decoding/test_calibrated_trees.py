"""The file of calibrated trees."""

import json

import pytest

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.trees.calibrated import CalibratedTree, CalibratedTrees
from specmesh.decoding.trees.shape import TreeShape

GREEDY = (CalibratedTree(TreeShape((1,)), 1.5), CalibratedTree(TreeShape((1, 1)), 1.9))
SAMPLED = (CalibratedTree(TreeShape((1,)), 1.4), CalibratedTree(TreeShape((2,)), 1.6))
TREES = CalibratedTrees("abc", "def", {0.0: GREEDY, 0.8: SAMPLED})


def changed(**changes: object) -> str:
    return json.dumps(json.loads(TREES.to_json()) | changes)


def with_tree(**changes: object) -> str:
    tree = {"num_children": [1], "acceptance_length": 1.5} | changes
    return changed(settings=[{"temperature": 0, "trees": [tree]}])


def test_trees_come_back_from_their_file():
    assert CalibratedTrees.from_json(TREES.to_json()) == TREES


@pytest.mark.parametrize(
    ("temperature", "trees"), [(0, GREEDY), (0.3, GREEDY), (0.5, SAMPLED), (2, SAMPLED)]
)
def test_the_nearest_temperature_counts(temperature, trees):
    assert TREES.nearest(temperature) == trees


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{", "file"),
        ("[]", "version"),
        ("{}", "version"),
        (changed(version=2), "version"),
        (changed(target_digest=7), "target_digest"),
        (changed(drafter_digest=None), "drafter_digest"),
        (changed(settings={}), "settings"),
        (changed(settings=[]), "settings"),
        (changed(settings=[{"temperature": -1, "trees": []}]), "settings[0].temperature"),
        (changed(settings=[{"temperature": 0, "trees": []}]), "settings[0].trees"),
        (with_tree(num_children=[2]), "settings[0].trees[0].num_children"),
        (with_tree(num_children=[0]), "settings[0].trees[0].num_children"),
        (with_tree(num_children=[True]), "settings[0].trees[0].num_children"),
        (with_tree(num_children="1"), "settings[0].trees[0].num_children"),
        (with_tree(acceptance_length="1"), "settings[0].trees[0].acceptance_length"),
        (with_tree(acceptance_length=True), "settings[0].trees[0].acceptance_length"),
        (with_tree(acceptance_length=float("nan")), "settings[0].trees[0].acceptance_length"),
    ],
)
def test_any_other_file_is_refused_by_the_name_of_its_field(text, field):
    with pytest.raises(InvalidField) as raised:
        CalibratedTrees.from_json(text)
    assert raised.value.field == field
