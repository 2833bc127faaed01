"""Heads as they are loaded for a target: its embedding, its number type, its vocabulary."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.inference.eagle3.reference import (
    TARGET,
    layer_config,
    random_reference,
    write_speculators,
)
from tests.inference.random_heads import random_eagle3, save_random_eagle3

from specmesh.inference.models.heads.along_text import drafts_along
from specmesh.inference.models.heads.eagle3.folder import save_eagle3
from specmesh.inference.models.heads.eagle3.identity import HeadsTarget
from specmesh.inference.models.heads.registry import load_heads
from specmesh.inference.models.loading import read_model

pytestmark = pytest.mark.cpu_only("heads without an engine")


EMBEDDING = "embed_tokens.weight"


def guesses(folder, target, digest, text):
    heads = load_heads(folder, target.model, digest)
    return torch.cat(list(drafts_along(heads, target.model, text, 3)))


def with_embedding(folder, weight):
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {EMBEDDING: weight}, folder / "model.safetensors")


def test_an_embedding_of_its_own_is_used(target, digest, text, tmp_path):
    folder = write_speculators(tmp_path, random_reference(layer_config()), None)
    plain = guesses(folder, target, digest, text)
    theirs = target.model.get_input_embeddings().weight.detach()
    with_embedding(folder, theirs.clone())
    assert torch.equal(guesses(folder, target, digest, text), plain)
    with_embedding(folder, theirs + 1)
    assert not torch.allclose(guesses(folder, target, digest, text), plain)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen2"])
def test_heads_compute_in_the_targets_number_type(folders, tmp_path, architecture):
    save_random_eagle3(folders[architecture], tmp_path)
    found = {}
    for dtype in ("float32", "bfloat16"):
        target = read_model(str(folders[architecture]), dtype, "cpu", None)
        digest = target.describe(dtype, None, None).weights_digest
        if dtype == "bfloat16":
            network = random_eagle3(target.model)
            save_eagle3(network, None, HeadsTarget(digests={dtype: digest}), tmp_path)
        heads = load_heads(tmp_path, target.model, digest)
        assert heads.kv_shape.dtype == target.model.dtype
        assert (heads.kv_shape.layers, heads.kv_shape.kv_heads, heads.kv_shape.head_dim) == (
            1,
            2,
            8,
        )
        text = torch.arange(1, 13)
        found[dtype] = next(iter(drafts_along(heads, target.model, text, 1)))
        assert found[dtype].dtype == target.model.dtype
    assert (found["bfloat16"] - found["float32"]).abs().mean() < 0.1 * found["float32"].std()


def test_what_was_saved_is_loaded(folders, tmp_path):
    guessed = torch.tensor([3, 7, 8, 21, 40])
    save_random_eagle3(folders["llama"], tmp_path / "some", guessed, fuse_norm="each")
    target = read_model(str(folders["llama"]), "float32", "cpu", None)
    digest = target.describe("float32", None, None).weights_digest
    heads = load_heads(tmp_path / "some", target.model, digest)
    network = random_eagle3(target.model, guessed, fuse_norm="each")
    states = torch.randn(4, 32)
    logits = heads.logits(states)
    with torch.no_grad():
        torch.testing.assert_close(logits[:, guessed], network.logits(states))
    others = torch.ones(60, dtype=torch.bool).index_fill(0, guessed, value=False)
    assert (logits[:, others] == -torch.inf).all()


def test_a_head_is_no_larger_than_its_layer(target, digest, tmp_path):
    """An embedding equal to the target's takes no memory of its own."""
    folder = write_speculators(tmp_path, random_reference(layer_config()), None)
    with_embedding(folder, target.model.get_input_embeddings().weight.detach().clone())
    heads = load_heads(folder, target.model, digest)
    assert heads._embed is target.model.get_input_embeddings()
    assert target.model.get_input_embeddings().weight.shape == (TARGET.vocab_size, 64)
