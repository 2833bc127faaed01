"""What can be loaded, what is said of it, and what is refused by name."""

from __future__ import annotations

import json
import shutil

import pytest
from tests.devices import device
from transformers import (
    AutoTokenizer,
    DiffLlamaConfig,
    GPTJConfig,
    LlamaConfig,
    MistralConfig,
    NemotronConfig,
    Qwen2Config,
)

from specmesh.decoding.trees.tree import EMPTY
from specmesh.drafter.__main__ import DrafterService, DrafterSettings
from specmesh.inference.model import Cancellation, ModelNotLoadable
from specmesh.inference.models import transformers_model
from specmesh.inference.models.transformers_model import TransformersModel

NEVER = Cancellation()
TINY = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


def load(name: object) -> TransformersModel:
    return TransformersModel.load(str(name), dtype="float32", device=device(), cache_bytes=1 << 16)


@pytest.fixture
def _offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen2"])
def test_model_describes_itself(folders, architecture):
    description = load(folders[architecture]).description
    assert description.name == architecture
    assert (description.vocab_size, description.context_tokens) == (60, 128)
    assert description.end_of_text_ids == (0,)
    assert description.num_parameters > 10_000
    assert '"<eos>"' in description.tokenizer_json


@pytest.mark.parametrize(
    ("inside", "name"),
    [("llama", "."), ("llama", "./"), ("llama/more", ".."), ("", "llama"), ("", "latest")],
)
def test_a_model_is_called_after_its_folder_wherever_one_stands(
    tmp_path, folders, monkeypatch, inside, name
):
    (shutil.copytree(folders["llama"], tmp_path / "llama") / "more").mkdir()
    (tmp_path / "latest").symlink_to("llama")
    monkeypatch.chdir(tmp_path / inside)
    assert load(name).description.name == (name if name == "latest" else "llama")


def test_what_training_left_in_the_tokenizers_file_is_not_sent(tmp_path, folders):
    folder = shutil.copytree(folders["llama"], tmp_path / "trained")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.enable_truncation(max_length=4)
    tokenizer.backend_tokenizer.enable_padding(length=16)
    tokenizer.save_pretrained(folder)
    left = json.loads((folder / "tokenizer.json").read_text())
    assert left["truncation"]
    assert left["padding"]
    for model in (load(folder), load_guess("prompt-lookup", tokenizer=str(folder))):
        sent = json.loads(model.description.tokenizer_json)
        assert (sent["truncation"], sent["padding"]) == (None, None)


@pytest.mark.usefixtures("_offline")
def test_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(ModelNotLoadable, match=f"the folder '{tmp_path}' is empty"):
        load(tmp_path)


@pytest.mark.usefixtures("_offline")
def test_folder_without_weights_is_named(tmp_path, folders):
    (tmp_path / "config.json").write_bytes((folders["llama"] / "config.json").read_bytes())
    with pytest.raises(ModelNotLoadable, match=str(tmp_path)):
        load(tmp_path)


@pytest.mark.usefixtures("_offline")
def test_folder_whose_weights_are_cut_off_is_named(tmp_path, folders):
    folder = shutil.copytree(folders["llama"], tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelNotLoadable, match=str(folder)):
        load(folder)


@pytest.mark.usefixtures("_offline")
def test_a_package_that_a_model_needs_is_named(tmp_path, folders):
    folder = shutil.copytree(folders["llama"], tmp_path / "quantized")
    file = folder / "config.json"
    quantized = {"quant_method": "compressed-tensors", "format": "int-quantized"}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"quantization_config": quantized}))
    with pytest.raises(ModelNotLoadable, match=f"{folder}.*compressed-tensors.* is required"):
        load(folder)


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize(
    ("file", "fields", "reason"),
    [
        ("config.json", {"max_position_embeddings": "512"}, "max_position_embeddings'.* got str"),
        ("config.json", {"max_position_embeddings": None}, "max_position_embeddings"),
        ("config.json", {"max_position_embeddings": 0}, "max_position_embeddings is 0, but must"),
        ("config.json", {"hidden_act": "strange"}, "hidden_act 'strange' is unknown"),
        (
            "config.json",
            {"rope_parameters": {"rope_type": "strange", "rope_theta": 1e4}},
            "rope_parameters.rope_type 'strange' is unknown",
        ),
        ("generation_config.json", "{", "Expecting property name"),
        ("generation_config.json", "[]", "not a JSON object"),
        ("tokenizer.json", "{", "Expecting property name"),
        ("tokenizer_config.json", "{", "Expecting property name"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_name(tmp_path, folders, file, fields, reason):
    folder = shutil.copytree(folders["llama"], tmp_path / "wrong")
    if isinstance(fields, dict):
        fields = json.dumps(json.loads((folder / file).read_text()) | fields)
    (folder / file).write_text(fields)
    with pytest.raises(ModelNotLoadable, match=f"as a folder: {file}: .*{reason}"):
        load(folder)


@pytest.mark.usefixtures("_offline")
def test_folder_without_a_tokenizer_is_told_so(tmp_path, folders):
    folder = shutil.copytree(folders["llama"], tmp_path / "dumb")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelNotLoadable, match=r"as a folder: there is no tokenizer\.json: "):
        load(folder)


@pytest.mark.usefixtures("_offline")
def test_folder_whose_weights_are_of_another_shape_is_named(tmp_path, folders):
    folder = shutil.copytree(folders["llama"], tmp_path / "other")
    config = LlamaConfig.from_pretrained(folder)
    config.intermediate_size += 16
    config.save_pretrained(folder)
    with pytest.raises(ModelNotLoadable, match=str(folder)):
        load(folder)


@pytest.mark.parametrize("device", ["hpu", "no-such-device"])
def test_device_that_torch_does_not_have_is_named(folders, device):
    with pytest.raises(ModelNotLoadable, match=f"'{device}'"):
        TransformersModel.load(str(folders["llama"]), dtype="float32", device=device)


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize("name", ["nobody/no-such-model", "no-such-folder", ""])
def test_unknown_id_is_named(name):
    with pytest.raises(ModelNotLoadable, match=f"cannot load '{name}'"):
        load(name)


@pytest.mark.usefixtures("_offline")
def test_where_a_drafter_is_unknown_those_that_need_no_model_are_named(tmp_path):
    advice = "; the drafters ngram, prompt-lookup and random need no model"
    with pytest.raises(ModelNotLoadable, match=advice):
        load_drafter("nobody/no-such-model")
    with pytest.raises(ModelNotLoadable) as refused:
        load_drafter(str(tmp_path))
    assert advice not in str(refused.value)


def load_drafter(model: str) -> None:
    DrafterService(DrafterSettings(model=model)).load()


@pytest.mark.usefixtures("_offline")
def test_unknown_tokenizer_is_named():
    with pytest.raises(ModelNotLoadable, match="nobody/no-such-model"):
        load_guess("random", tokenizer="nobody/no-such-model")


@pytest.mark.parametrize("layer_types", ["listed", "implied"])
def test_layers_that_forget_are_refused(tmp_path, layer_types, save_tiny):
    """A sliding window drops the keys that a rollback would need."""
    shape = {**TINY, "sliding_window": 16}
    config = (
        Qwen2Config(**shape, use_sliding_window=True, max_window_layers=1)
        if layer_types == "listed"
        else MistralConfig(**shape)
    )
    save_tiny(tmp_path, config)
    with pytest.raises(ModelNotLoadable, match="without full attention"):
        load(tmp_path)


def test_attention_that_takes_no_boolean_mask_is_refused(tmp_path, save_tiny):
    """Its trees would be scored wrongly, and nobody would be told."""
    ids = {"bos_token_id": 0, "eos_token_id": 0}
    shape = {"vocab_size": 60, "n_embd": 32, "n_layer": 1, "n_head": 2, "rotary_dim": 8}
    save_tiny(tmp_path, GPTJConfig(**shape, **ids))
    with pytest.raises(ModelNotLoadable, match="GPTJ"):
        load(tmp_path)


def test_model_that_says_something_else_once_its_parts_are_replaced_is_refused(
    folders, monkeypatch
):
    def spoil(model, dtype):
        model.model.norm.weight.data *= 1.01

    monkeypatch.setattr(transformers_model, "fuse_norms", spoil)
    with pytest.raises(
        ModelNotLoadable, match=r"LlamaForCausalLM computes different logits .* differ by"
    ):
        load(folders["llama"])


def test_model_whose_attention_is_not_told_of_the_batch_is_refused(tmp_path, save_tiny):
    save_tiny(tmp_path, NemotronConfig(**TINY))
    with pytest.raises(
        ModelNotLoadable, match=r"Nemotron.* does not work with specmesh.s attention"
    ):
        load(tmp_path)


def test_model_that_stores_other_values_than_it_attends_to_is_refused(tmp_path, save_tiny):
    """It attends twice in a layer, so only the values of the second time stay stored."""
    save_tiny(tmp_path, DiffLlamaConfig(**TINY | {"num_key_value_heads": 2}))
    with pytest.raises(ModelNotLoadable, match=r"DiffLlama.* computes different logits"):
        load(tmp_path)


def load_guess(backend: str, **settings: object):
    return DrafterService(DrafterSettings(backend=backend, **settings)).load()


@pytest.mark.parametrize("backend", ["ngram", "prompt-lookup", "random"])
def test_drafter_without_a_network_speaks_the_targets_tokenizer(folders, tmp_path, backend):
    (tmp_path / "corpus.txt").write_text("abababac")
    tokenizer = str(folders["llama"])
    corpus = {"corpus": str(tmp_path)} if backend == "ngram" else {}
    model = load_guess(backend, tokenizer=tokenizer, **corpus)
    assert model.description.vocab_size == 60
    assert model.description.backend == backend
    assert model.description.tokenizer_json == load(folders["llama"]).description.tokenizer_json
    assert model.open([1, 2, 1], NEVER).score(EMPTY).shape == (1, 60)


def test_ngram_without_a_corpus_is_refused(folders, tmp_path):
    with pytest.raises(ModelNotLoadable, match=str(tmp_path)):
        load_guess("ngram", tokenizer=str(folders["llama"]), corpus=str(tmp_path))
