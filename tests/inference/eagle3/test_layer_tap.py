"""What EAGLE-3 heads read of a target: the hidden states between its layers."""

import pytest
import torch
from tests.inference.eagle3.reference import LAYER_IDS

from specmesh.inference.models.heads.eagle3.layer_tap import LayerTap, look_inside
from specmesh.inference.models.heads.seen import look
from specmesh.inference.models.loading import read_model

pytestmark = pytest.mark.cpu_only("heads without an engine")


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen2"])
def test_state_j_enters_layer_j(folders, architecture):
    target = read_model(str(folders[architecture]), "float32", "cpu", None).model
    text = torch.arange(1, 13)[None]
    with torch.no_grad():
        states = target(text, output_hidden_states=True).hidden_states
    seen = look_inside(target, text, (0, 1))
    torch.testing.assert_close(seen.hidden, torch.cat(states[:2], -1))
    torch.testing.assert_close(seen.logits, look(target, text).logits)


def test_the_last_state_is_yet_to_be_normalised(target):
    text = torch.arange(1, 13)[None]
    with torch.no_grad():
        normed = target.model.model.norm(look_inside(target.model, text, (8,)).hidden)
    torch.testing.assert_close(normed, look(target.model, text).hidden)


def test_states_follow_each_other_in_the_order_of_their_ids(target):
    text = torch.arange(1, 13)[None]
    apart = [look_inside(target.model, text, (each,)).hidden for each in LAYER_IDS]
    assert torch.equal(look_inside(target.model, text, LAYER_IDS).hidden, torch.cat(apart, -1))


def test_a_removed_tap_leaves_no_hooks(target):
    def hooks():
        return sum(
            len(layer._forward_hooks) + len(layer._forward_pre_hooks)
            for layer in target.model.modules()
        )

    before = hooks()
    tap = LayerTap(target.model, (0, 3, 8))
    assert hooks() == before + 3
    tap.remove()
    assert hooks() == before
