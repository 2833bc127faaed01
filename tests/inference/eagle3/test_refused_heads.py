"""Heads of another target, and files that don't hold a head, are refused by name."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.inference.eagle3.reference import (
    layer_config,
    random_reference,
    write_authors,
    write_speculators,
)
from tests.inference.random_heads import save_random_eagle3

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.heads.registry import load_heads
from specmesh.inference.models.loading import read_model

pytestmark = pytest.mark.cpu_only("heads without an engine")


@pytest.fixture
def speculators(tmp_path):
    return write_speculators(tmp_path, random_reference(layer_config()), "lab/Target-8B")


def refusal(folder, target, digest):
    with pytest.raises(ModelNotLoadable) as refused:
        load_heads(folder, target, digest)
    assert str(folder) in str(refused.value)
    return str(refused.value)


def edit(folder, **changes):
    """Change fields of ``config.json``; a name with dots is that of a field within others."""
    config = json.loads((folder / "config.json").read_text())
    for name, value in changes.items():
        *path, last = name.split("__")
        within = config
        for each in path:
            within = within[each]
        within[last] = value
    (folder / "config.json").write_text(json.dumps(config))


def test_another_name_of_the_target(speculators, target, digest):
    edit(speculators, speculators_config__verifier__name_or_path="lab/Target-70B")
    told = refusal(speculators, target.model, digest)
    assert "lab/Target-70B" in told
    assert target.model.name_or_path in told


@pytest.mark.parametrize("name", ["/models/target-8b/", "Target-8B", None])
def test_any_copy_of_the_target_will_do(speculators, target, digest, name):
    edit(speculators, speculators_config__verifier__name_or_path=name)
    assert load_heads(speculators, target.model, digest).target_digest == digest


def test_another_architecture_of_the_target(speculators, target, digest):
    edit(speculators, speculators_config__verifier__architectures=["Qwen3ForCausalLM"])
    told = refusal(speculators, target.model, digest)
    assert "architecture Qwen3ForCausalLM" in told
    assert "architecture LlamaForCausalLM" in told


@pytest.mark.parametrize(
    ("changes", "theirs", "ours"),
    [
        ({"transformer_layer_config__vocab_size": 640}, "vocabulary size 640", "size 501"),
        ({"target_hidden_size": 128}, "hidden size 128", "size 64"),
    ],
)
def test_other_sizes_of_the_target(speculators, target, digest, changes, theirs, ours):
    edit(speculators, **changes)
    told = refusal(speculators, target.model, digest)
    assert theirs in told
    assert ours in told


def test_a_target_of_fewer_layers(speculators, target, digest):
    edit(speculators, eagle_aux_hidden_state_layer_ids=[2, 16, 29])
    told = refusal(speculators, target.model, digest)
    assert "[2, 16, 29]" in told
    assert "8 layers" in told


def test_our_heads_know_their_target_by_its_digest(folders, tmp_path):
    folder = save_random_eagle3(folders["llama"], tmp_path)
    theirs, ours = (
        read_model(str(folders[name]), "float32", "cpu", None) for name in ("llama", "qwen2")
    )
    digests = [each.describe("float32", None, None).weights_digest for each in (theirs, ours)]
    assert load_heads(folder, theirs.model, digests[0]).target_digest == digests[0]
    told = refusal(folder, ours.model, digests[1])
    assert all(each in told for each in digests)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"transformer_layer_config__num_hidden_layers": 2}, "num_hidden_layers"),
        ({"transformer_layer_config__model_type": "mixtral"}, "model_type"),
        ({"transformer_layer_config__hidden_act": "gelu"}, "hidden_act"),
        ({"transformer_layer_config__sliding_window": 512}, "sliding_window 512"),
        ({"transformer_layer_config__rope_parameters": {"rope_type": "dynamic"}}, "'dynamic'"),
        ({"draft_vocab_size": 124}, "draft_vocab_size 124"),
        ({"draft_vocab_size": "many"}, "draft_vocab_size"),
        ({"speculators_config__proposal_methods": []}, "proposal_methods"),
        ({"norm_before_fc": True}, "input_norm.weight"),
        ({"transformer_layer_config__num_attention_heads": 0}, "num_attention_heads"),
        ({"transformer_layer_config__rope_parameters": {"rope_type": "linear"}}, "rope_parameters"),
        ({"architectures": 5, "speculators_model_type": None}, "none of the formats"),
    ],
)
def test_what_is_not_computed_is_named(speculators, target, digest, changes, told):
    edit(speculators, **changes)
    assert told in refusal(speculators, target.model, digest)


def test_files_of_no_known_format(speculators, target, digest):
    edit(speculators, speculators_model_type="dflash", architectures=["DFlashDraftModel"])
    told = refusal(speculators, target.model, digest)
    assert "speculators eagle3" in told


def _without(folder, name):
    tensors = load_file(folder / "model.safetensors")
    del tensors[name]
    save_file(tensors, folder / "model.safetensors")


def _with(folder, name, tensor):
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {name: tensor}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: _without(folder, "layers.0.mlp.up_proj.weight"), "up_proj"),
        (lambda folder: _without(folder, "d2t"), "d2t"),
        (lambda folder: _with(folder, "layers.1.mlp.up_proj.weight", torch.ones(1)), "layers.1"),
        (lambda folder: _with(folder, "d2t", torch.zeros(125).long() + 499), "d2t"),
        (lambda folder: _with(folder, "fc.weight", torch.ones(3, 3)), "size mismatch for fc"),
        (lambda folder: _with(folder, "embed_tokens.weight", torch.ones(10, 64)), "(10, 64)"),
        (
            lambda folder: _with(folder, "embed_tokens.weight", torch.full((501, 64), torch.nan)),
            "'embed_tokens.weight' has numbers that are not finite",
        ),
        (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"cut off"), "header"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json"),
        (lambda folder: (folder / "config.json").write_text("[1]"), "none of the formats"),
        (lambda folder: (folder / "config.json").unlink(), "config.json"),
    ],
)
def test_broken_files_are_named(speculators, target, digest, spoil, told):
    spoil(speculators)
    assert told.lower() in refusal(speculators, target.model, digest).lower()


@pytest.mark.parametrize("pickled", [[torch.ones(1)], torch.ones(1), {"fc.weight": 5}])
def test_pickled_files_without_tensors_by_name(target, digest, tmp_path, pickled):
    folder = write_authors(tmp_path, random_reference(layer_config()))
    torch.save(pickled, folder / "pytorch_model.bin")
    assert "does not hold tensors by name" in refusal(folder, target.model, digest)


def test_a_pickled_file_that_is_empty(target, digest, tmp_path):
    folder = write_authors(tmp_path, random_reference(layer_config()))
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert "EOFError" in refusal(folder, target.model, digest)


def test_pickled_files_run_no_code(target, digest, tmp_path):
    folder = write_authors(tmp_path, random_reference(layer_config()))
    torch.save({"d2t": print}, folder / "pytorch_model.bin")
    assert "weights" in refusal(folder, target.model, digest).lower()
