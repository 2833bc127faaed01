"""The file of calibrated trees that an orchestrator is given."""

from types import SimpleNamespace

import pytest

from specmesh.decoding.trees.calibrated import CalibratedTree, CalibratedTrees
from specmesh.decoding.trees.shape import TreeShape
from specmesh.orchestrator.driver.tree_file import check_trees, read_trees
from specmesh.serving.startup import CannotStart
from specmesh.v1 import model_pb2

TREES = CalibratedTrees("big", "small", {0.0: (CalibratedTree(TreeShape((1,)), 1.5),)})


def replica(digest: str | None) -> SimpleNamespace:
    """With no digest one whose model isn't known yet."""
    info = model_pb2.ModelInfo(name="m", weights_digest=digest or "")
    return SimpleNamespace(model=None if digest is None else SimpleNamespace(info=info))


def test_trees_are_read_from_the_file(tmp_path):
    file = tmp_path / "trees.json"
    file.write_text(TREES.to_json())
    assert read_trees(file) == TREES
    assert read_trees(None) is None


@pytest.mark.parametrize(
    ("written", "told"), [(b"{}", "version"), (b"\xff", "utf-8"), (None, "No such file")]
)
def test_a_file_that_cannot_be_read_is_told_by_option_name_and_reason(tmp_path, written, told):
    file = tmp_path / "trees.json"
    if written is not None:
        file.write_bytes(written)
    with pytest.raises(CannotStart, match=f"--trees .*trees.json: .*{told}"):
        read_trees(file)


@pytest.mark.parametrize(
    ("verifiers", "drafters", "field"),
    [
        (["other"], ["small"], "target_digest"),
        (["big"], ["other", "small"], "drafter_digest"),
    ],
)
def test_trees_of_other_models_are_refused_by_the_name_of_the_field(verifiers, drafters, field):
    with pytest.raises(CannotStart, match=f"--trees: {field}: .* 'm' has 'other'"):
        check_trees(TREES, [*map(replica, verifiers)], [*map(replica, drafters)])


@pytest.mark.parametrize("drafters", [["small"], ["small", "other"], [None], []])
def test_trees_of_these_models_are_taken_as_far_as_they_are_known(drafters):
    check_trees(TREES, [replica("big")], [*map(replica, drafters)])
