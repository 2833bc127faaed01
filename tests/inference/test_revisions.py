"""A revision of a Hugging Face id is what all is read of, from a cache of the hub's."""

from __future__ import annotations

import shutil

import pytest
from safetensors.torch import load_file, save_file
from tests.devices import device
from tests.inference.test_checkpoints import change_json
from tests.inference.test_model_loading import load_guess

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.loading import read_files
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.inference.models.vllm.loading.quantized import describe_quantized

NAME = "somebody/tiny"
MAIN, OLD = "a" * 40, "b" * 40
"""Commits."""
TAG = "v1"
WEIGHTS = "model.safetensors"


@pytest.fixture
def _hub(folders, tmp_path, monkeypatch) -> None:
    """Two commits of a model that differ in all that is read, fetched before; no network."""
    repository = tmp_path / "hub/models--somebody--tiny"
    for commit, ref in ((MAIN, "main"), (OLD, TAG)):
        shutil.copytree(folders["llama"], repository / "snapshots" / commit)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / ref).write_text(commit)
    old = repository / "snapshots" / OLD
    tensors = load_file(old / WEIGHTS)
    save_file({name: tensor / 2 for name, tensor in tensors.items()}, old / WEIGHTS)
    change_json(old / "config.json", max_position_embeddings=64)
    change_json(old / "generation_config.json", eos_token_id=7)
    tokenizer = (old / "tokenizer.json").read_text()
    (old / "tokenizer.json").write_text(tokenizer.replace('"5"', '"!"'))
    (old / "chat_template.jinja").write_text("{{ messages }}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def load(revision: str | None) -> TransformersModel:
    sizes = {"dtype": "float32", "device": device(), "cache_bytes": 1 << 16}
    return TransformersModel.load(NAME, revision=revision, **sizes)


@pytest.mark.usefixtures("_hub")
@pytest.mark.parametrize("revision", [TAG, OLD])
def test_all_that_is_read_is_of_the_revision(revision):
    newest, old = (load(each).description for each in (None, revision))
    assert (newest.revision, old.revision) == (MAIN, OLD)
    assert (newest.context_tokens, old.context_tokens) == (128, 64)
    assert newest.weights_digest != old.weights_digest
    assert old.end_of_text_ids == (7, 0)
    assert '"!"' in old.tokenizer_json
    assert '"!"' not in newest.tokenizer_json
    assert newest.chat_template is None
    assert old.chat_template is not None


@pytest.mark.usefixtures("_hub")
def test_quantized_weights_are_of_the_revision():
    digests = [
        describe_quantized(read_files(NAME, revision), "float32", None).weights_digest
        for revision in (None, MAIN, TAG)
    ]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.usefixtures("_hub")
def test_the_tokenizer_of_a_drafter_without_a_model_is_of_the_revision():
    newest, old = (load_guess("random", tokenizer=NAME, revision=each) for each in ("", TAG))
    assert '"!"' in old.description.tokenizer_json
    assert '"!"' not in newest.description.tokenizer_json


@pytest.mark.usefixtures("_hub")
def test_a_revision_that_there_is_not_is_refused():
    with pytest.raises(ModelNotLoadable, match=f"cannot load '{NAME}'"):
        load("v2")


def test_a_revision_of_a_folder_is_refused(folders):
    folder = str(folders["llama"])
    with pytest.raises(ModelNotLoadable, match=f"--revision is for .* '{folder}' is a folder"):
        read_files(folder, "main")
    with pytest.raises(ModelNotLoadable, match=f"--revision is for .* '{folder}' is a folder"):
        load_guess("random", tokenizer=folder, revision="main")


def test_a_revision_of_no_model_at_all_is_refused():
    with pytest.raises(ModelNotLoadable, match="--revision: backend 'simulated' does not use it"):
        load_guess("simulated", revision="main")
