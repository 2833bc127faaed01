"""Heads compute what the package ``speculators`` computes, where that is installed: it wants much
that nothing else here needs."""

import warnings

import pytest
import torch
from tests.inference.eagle3.reference import (
    LAYER_IDS,
    guessed_ids,
    layer_config,
    random_reference,
    write_speculators,
)

from specmesh.inference.models.heads.along_text import drafts_along
from specmesh.inference.models.heads.eagle3.folder import save_eagle3
from specmesh.inference.models.heads.eagle3.identity import HeadsTarget
from specmesh.inference.models.heads.eagle3.layer_tap import look_inside
from specmesh.inference.models.heads.registry import load_heads
from specmesh.training.heads.eagle3 import Eagle3Trainee, eagle3_config

pytestmark = pytest.mark.cpu_only("heads without an engine")


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    eagle3 = pytest.importorskip("speculators.models.eagle3")

DEPTH = 4


def theirs(folder, target, text):
    """The logits at each depth of drafts from all positions, by the package."""
    config = eagle3.Eagle3SpeculatorConfig.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "eager"
    head = eagle3.Eagle3DraftModel.from_pretrained(folder, config=config).float()
    head.embed_tokens.weight.data = target.get_input_embeddings().weight.detach().clone()
    found = []
    head.lm_head.register_forward_hook(lambda _layer, _given, logits: found.append(logits[0]))
    hidden = look_inside(target, text[None], LAYER_IDS).hidden[:, :-1]
    with torch.no_grad():
        head(
            hidden.float(),
            text[None, 1:],
            torch.zeros(1, len(text) - 1, dtype=torch.long),
            ttt_steps=DEPTH,
        )
    return found


def compare(folder, target, digest, text):
    heads = load_heads(folder, target.model, digest)
    ours = list(drafts_along(heads, target.model, text, 1))
    for got, want in zip(ours, theirs(folder, target.model, text), strict=False):
        guessed = got[:, guessed_ids()]
        torch.testing.assert_close(guessed, want[: len(got)], rtol=0, atol=1e-4)
        top = want[: len(got)].topk(5).indices
        assert torch.equal(guessed.topk(5).indices, top)
    assert len(ours) == DEPTH


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm_before_residual": True},
        {"fc_norm": True},
        {"norm_before_fc": True},
        {"norm_output": True},
    ],
)
@pytest.mark.parametrize("model_type", ["llama", "qwen3"])
def test_a_head_of_theirs(target_folder, target, digest, text, tmp_path, options, model_type):
    head = random_reference(layer_config(model_type), **options)
    compare(write_speculators(tmp_path, head, str(target_folder)), target, digest, text)


def test_a_head_that_we_trained(target_folder, target, digest, text, tmp_path):
    config = eagle3_config(target.model, num_guessed=125, inner_size=96, max_depth=DEPTH)
    torch.manual_seed(2)
    trainee = Eagle3Trainee(config, target.model, HeadsTarget(), guessed_ids())
    for parameter in trainee.network.parameters():  # the file is in bf16
        parameter.data = (parameter.data + 0.1 * torch.rand(parameter.shape)).bfloat16().float()
    save_eagle3(trainee.network, guessed_ids(), HeadsTarget(str(target_folder)), tmp_path)
    compare(tmp_path, target, digest, text)
