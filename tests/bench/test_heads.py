"""How drafts of heads are counted, and the counts of the shipped ones."""

import json

import numpy as np
import pytest
from tests.inference.random_heads import save_random_eagle3
from typer.testing import CliRunner

from specmesh import models
from specmesh.bench.heads import acceptance_by_depth, app, tokens_per_call

YES, NO = True, False


def test_a_token_counts_where_those_before_it_were_accepted():
    one = np.array([[YES, YES, NO], [NO, YES, YES]])
    other = np.array([[YES, NO, YES], [YES, YES, YES]])
    assert acceptance_by_depth([one, other]) == [3 / 4, 2 / 3, 1 / 2]


def test_a_depth_that_no_draft_reaches_has_no_acceptance():
    assert acceptance_by_depth([np.array([[NO, YES]])]) == [0.0, 0.0]


def test_drafts_follow_each_other_behind_the_targets_own_tokens():
    agreement = np.array(
        [
            [YES, NO],  # a draft of one that stands, and the target's own: on to the third row
            [YES, YES],
            [YES, YES],  # of two, and its own: on to the sixth
            [NO, NO],
            [NO, NO],
            [NO, YES],
        ]
    )
    assert tokens_per_call(agreement, 2) == pytest.approx((2 + 3 + 1) / 3)
    assert tokens_per_call(agreement, 1) == pytest.approx((2 + 2 + 1 + 1) / 4)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_shipped_heads_beside_the_shipped_drafter(temperature):
    options = ("--num-prompts", "4", "--tokens", "48", "--depth", "3", "--json")
    done = CliRunner().invoke(app, [*options, "--temperature", str(temperature)])
    assert done.exit_code == 0, done.output
    drafter, heads = json.loads(done.output)["rows"]
    assert (drafter["drafter"], heads["drafter"]) == (models.DRAFTER, models.HEADS)
    for row in (drafter, heads):
        assert row["temperature"] == temperature
        assert all(0.3 < share < 1 for share in row["acceptance_by_depth"][:1])
        assert 1 < row["tokens_per_call"][0] <= row["tokens_per_call"][2] < 4
    assert heads["step_ms"] > 0


def test_longer_drafts_than_the_heads_have_are_refused():
    done = CliRunner().invoke(app, ["--depth", "9"])
    assert done.exit_code == 2
    assert "drafts 5 tokens" in done.output


def test_a_head_that_attends_is_measured_like_any_other(tmp_path):
    target = models.path(models.TARGET)
    folder = save_random_eagle3(target, tmp_path / "attending")
    options = ("--num-prompts", "1", "--tokens", "12", "--depth", "2", "--temperature", "0")
    done = CliRunner().invoke(app, [*options, "--heads", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    _, heads = json.loads(done.output)["rows"]
    assert heads["drafter"] == "attending"
    assert len(heads["acceptance_by_depth"]) == 2
    assert heads["step_ms"] > 0
