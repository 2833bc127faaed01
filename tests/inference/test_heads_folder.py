"""Heads in a folder: for which targets they load, and that they then guess what they were saved to
guess."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.cpu.linear import pack_linears
from specmesh.inference.models.heads.folder import HeadsConfig, save_heads
from specmesh.inference.models.heads.registry import load_heads
from specmesh.inference.models.heads.seen import look
from specmesh.inference.models.heads.target_ends import TargetEnds
from specmesh.inference.models.loading import read_model

pytestmark = pytest.mark.cpu_only("heads without an engine")


ARCHITECTURES = ["llama", "gpt2", "qwen2"]
KINDS = ["medusa", "recurrent"]
GUESSED = torch.tensor([3, 7, 8, 21, 40])


def read(folders, architecture, dtype="float32"):
    return read_model(str(folders[architecture]), dtype, "cpu", None)


def digest(target, dtype="float32"):
    return target.describe(dtype, None, None).weights_digest


def write_heads(folder, target, kind, guessed=None, **changes):
    """Random heads for ``target``, with weights that bf16 holds exactly."""
    config = HeadsConfig(
        **{
            "kind": kind,
            "target_digests": {"float32": digest(target)},
            "hidden_size": 32,
            "embedding_size": 32,
            "vocab_size": 60,
            "inner_size": 48 if kind == "recurrent" else 0,
            "max_depth": 3,
        }
        | changes
    )
    torch.manual_seed(0)
    network = config.network()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape).bfloat16())
    save_heads(config, network, guessed, folder)
    return network


def seen_along_a_text(target):
    tokens = torch.arange(1, 13)
    return tokens, look(target.model, tokens[None]).hidden[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_loaded_heads_guess_what_was_saved(folders, tmp_path, architecture, kind):
    target = read(folders, architecture)
    network = write_heads(tmp_path, target, kind)
    heads = load_heads(tmp_path, target.model, digest(target))
    assert heads.target_digest == digest(target)
    assert heads.max_depth == 3

    ends = TargetEnds(target.model)
    tokens, hidden = seen_along_a_text(target)
    states, expected_states = heads.begin(hidden), hidden
    for depth in range(3):
        read_tokens = tokens.roll(-1 - depth)
        logits, states = heads.step(states, read_tokens, torch.full((12,), depth))
        with torch.no_grad():
            features, expected_states = network(expected_states, ends.embed(read_tokens), depth)
            expected = ends.guesses(features)
        assert logits.shape == (12, 60)
        assert states.shape == (12, 32)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tokens_that_are_never_guessed_have_no_logit(folders, tmp_path, architecture, kind):
    target = read(folders, architecture)
    write_heads(tmp_path / "all", target, kind)
    write_heads(tmp_path / "some", target, kind, GUESSED)
    tokens, hidden = seen_along_a_text(target)
    found = []
    for name in ("all", "some"):
        heads = load_heads(tmp_path / name, target.model, digest(target))
        found.append(heads.step(heads.begin(hidden), tokens, torch.zeros(12).long())[0])
    every, some = found
    torch.testing.assert_close(some[:, GUESSED], every[:, GUESSED])
    others = torch.ones(60, dtype=torch.bool).index_fill(0, GUESSED, value=False)
    assert (some[:, others] == -torch.inf).all()


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_of_different_depths_share_a_step(folders, tmp_path, kind):
    target = read(folders, "llama")
    write_heads(tmp_path, target, kind)
    heads = load_heads(tmp_path, target.model, digest(target))
    tokens, hidden = seen_along_a_text(target)
    depths = torch.tensor([0, 2, 1, 0, 1, 2, 2, 0, 0, 1, 1, 2])
    logits, states = heads.step(heads.begin(hidden), tokens, depths)
    for row in range(12):
        one = slice(row, row + 1)
        own, after = heads.step(heads.begin(hidden[one]), tokens[one], depths[one])
        torch.testing.assert_close(logits[one], own)
        torch.testing.assert_close(states[one], after)


@pytest.mark.parametrize("guessed", [None, GUESSED], ids=["all", "some"])
def test_heads_go_on_when_the_targets_layers_are_packed(folders, tmp_path, guessed):
    target = read(folders, "qwen2", "bfloat16")
    write_heads(tmp_path, target, "recurrent", guessed)
    heads = load_heads(tmp_path, target.model, digest(target))
    tokens, hidden = seen_along_a_text(target)
    before = heads.step(heads.begin(hidden), tokens, torch.zeros(12).long())[0]
    pack_linears(target.model)
    after = heads.step(heads.begin(hidden), tokens, torch.zeros(12).long())[0]
    assert after.dtype == torch.bfloat16
    torch.testing.assert_close(after, before, rtol=0.05, atol=0.5)


def test_heads_of_another_target_are_refused_with_both_digests(folders, tmp_path):
    theirs, ours = read(folders, "llama"), read(folders, "qwen2")
    write_heads(tmp_path, theirs, "recurrent")
    with pytest.raises(ModelNotLoadable) as refused:
        load_heads(tmp_path, ours.model, digest(ours))
    assert digest(theirs) in str(refused.value)
    assert digest(ours) in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_each_number_type_that_a_target_is_served_in_has_its_digest(folders, tmp_path):
    exact, rounded = read(folders, "llama"), read(folders, "llama", "bfloat16")
    digests = {"float32": digest(exact), "bfloat16": digest(rounded)}
    assert len(set(digests.values())) == 2
    write_heads(tmp_path, exact, "medusa", target_digests=digests)
    for target in (exact, rounded):
        heads = load_heads(tmp_path, target.model, digest(target))
        _, hidden = seen_along_a_text(target)
        logits, _ = heads.step(heads.begin(hidden), torch.arange(12), torch.zeros(12).long())
        assert logits.dtype == target.model.dtype


def _without_a_tensor(folder):
    (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | {"max_depth": 4})
    )


def _cut_off(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])


def _of_no_known_kind(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"kind": "hydra"}))


@pytest.mark.parametrize(
    "spoil",
    [
        _cut_off,
        _of_no_known_kind,
        _without_a_tensor,
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / "model.safetensors").unlink(),
    ],
)
def test_broken_folder_is_named(folders, tmp_path, spoil):
    target = read(folders, "llama")
    write_heads(tmp_path, target, "medusa")
    spoil(tmp_path)
    with pytest.raises(ModelNotLoadable, match=str(tmp_path)):
        load_heads(tmp_path, target.model, digest(target))


@pytest.mark.parametrize(
    "change",
    [
        *({"max_depth": depth} for depth in (0, -2, 100_000)),
        *({"inner_size": size} for size in (-4, 1 << 50)),
        *({"vocab_size": 61}, {"hidden_size": 64}, {"embedding_size": 0}),
    ],
    ids=str,
)
def test_heads_of_impossible_sizes_are_refused_by_field(folders, tmp_path, change):
    target = read(folders, "llama")
    write_heads(tmp_path, target, "recurrent")
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    (field,) = change
    with pytest.raises(ModelNotLoadable, match=field if field != "inner_size" else "gate_up|inner"):
        load_heads(tmp_path, target.model, digest(target))


@pytest.mark.parametrize(
    "ids", [[1, 60], [1, -3], [5, 5], [], [[1, 2], [3, 4]], [1.5, 2.5]], ids=str
)
def test_heads_that_guess_no_tokens_of_the_vocabulary_are_refused(folders, tmp_path, ids):
    target = read(folders, "llama")
    write_heads(tmp_path, target, "medusa")
    weights = tmp_path / "model.safetensors"
    save_file(load_file(weights) | {"guessed_token_ids": torch.tensor(ids)}, weights)
    with pytest.raises(ModelNotLoadable, match="'guessed_token_ids'"):
        load_heads(tmp_path, target.model, digest(target))


@pytest.mark.parametrize(("number", "dtype"), [(torch.nan, "float32"), (1e6, "float16")])
def test_heads_whose_weights_are_not_finite_are_refused(folders, tmp_path, number, dtype):
    target = read(folders, "llama", dtype)
    write_heads(tmp_path, target, "medusa", target_digests={dtype: digest(target, dtype)})
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    tensors["blocks.1.bias"][3] = number
    save_file(tensors, weights)
    with pytest.raises(ModelNotLoadable, match=r"'blocks\.1\.bias' has numbers"):
        load_heads(tmp_path, target.model, digest(target, dtype))
