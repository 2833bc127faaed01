"""Checkpoints as they come: what doesn't fit together is refused by name, or told."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.devices import device
from tests.e2e.processes import Processes
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    GenerationConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
)

from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.model import Cancellation, ModelDescription, ModelNotLoadable
from specmesh.inference.models import generation_config
from specmesh.inference.models.generation_config import asked_in_vain, sampling_defaults
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.v1.sampling_pb2 import SamplingParameters

DOCS = Path(__file__).parents[2] / "docs/models.md"
WEIGHTS = "model.safetensors"
TEXT = {
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}


def load(folder: Path) -> TransformersModel:
    return TransformersModel.load(
        str(folder), dtype="float32", device=device(), cache_bytes=1 << 16
    )


def described(folder: Path) -> ModelDescription:
    return load(folder).description


def refusal(folder: Path) -> str:
    """Why it is refused: one sentence that names it."""
    with pytest.raises(ModelNotLoadable) as told:
        load(folder)
    text = str(told.value)
    assert repr(str(folder)) in text
    assert "\n" not in text
    return text


@pytest.fixture
def copy(folders, tmp_path) -> Path:
    """A folder of a model whose files a test may change."""
    return shutil.copytree(folders["llama"], tmp_path / "copy")


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def change_json(file: Path, **fields: object) -> None:
    """Set fields; those that are None are taken out."""
    old = json.loads(file.read_text()) if file.exists() else {}
    new = {name: value for name, value in (old | fields).items() if value is not None}
    file.write_text(json.dumps(new))


# Tensors


@pytest.mark.parametrize("tensor", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight"])
def test_a_tensor_that_is_missing_is_named(copy, tensor):
    change_tensors(copy, lambda tensors: tensors.pop(tensor))
    assert f"lacks 1 tensor ({tensor})" in refusal(copy)


def test_an_output_layer_that_is_neither_stored_nor_tied_is_named(copy):
    """As in a folder of an embedding model, or of a base model alone."""
    change_tensors(copy, lambda tensors: tensors.pop("lm_head.weight"))
    assert "lm_head.weight" in refusal(copy)


def test_an_output_layer_that_is_tied_is_not_missing(save_tiny, tmp_path):
    save_tiny(tmp_path, LlamaConfig(**TEXT, tie_word_embeddings=True))
    assert "lm_head.weight" not in load_file(tmp_path / WEIGHTS)
    assert described(tmp_path).vocab_size == TEXT["vocab_size"]


def test_of_many_missing_tensors_some_are_named_and_all_counted(copy):
    change_json(copy / "config.json", num_hidden_layers=3)
    reason = refusal(copy)
    assert "lacks 9 tensors" in reason
    assert "model.layers.2.input_layernorm.weight" in reason
    assert len(reason) < 500


def test_a_tensor_of_another_shape_is_named_with_both_shapes(copy):
    change_json(copy / "config.json", intermediate_size=64)
    assert "model.layers.0.mlp.down_proj.weight is 32×48, not 32×64" in refusal(copy)


def test_tensors_that_the_model_has_no_use_for_are_told(copy, caplog):
    change_tensors(copy, lambda tensors: tensors.update({"model.layers.0.bias": torch.ones(3)}))
    described(copy)
    (told,) = (record for record in caplog.records if record.message == "tensors not used")
    assert "1 tensor (model.layers.0.bias)" in told.tensors


def test_a_verifier_with_other_weights_is_refused_as_an_error_with_both_digests(copy, tmp_path):
    """Of two that are up only one answers, and who runs them must hear of it."""
    other = shutil.copytree(copy, tmp_path / "elsewhere" / copy.name)
    change_tensors(other, lambda tensors: tensors["model.norm.weight"].mul_(2))
    with Processes() as processes:
        verifiers = [processes.service("verifier", "--model", str(each)) for each in (copy, other)]
        drafter = ("drafter", "--backend", "random", "--tokenizer", str(copy))
        orchestrator = processes.orchestrator(verifiers, [processes.service(*drafter)])
        told = orchestrator.wait_event("peer refused")
        digests = [each.wait_event("model ready")["weights_digest"] for each in verifiers]
    assert told["level"] == "error"
    assert all(digest[:12] in told["reason"] for digest in digests)


# Models of text and images


def save(folder: Path, model: torch.nn.Module, tokenizer: Path) -> Path:
    model.save_pretrained(folder)
    PreTrainedTokenizerFast.from_pretrained(tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture
def gemma(folders, tmp_path) -> tuple[Path, Gemma3ForConditionalGeneration]:
    torch.manual_seed(1)
    text = {**TEXT, "layer_types": ["full_attention"] * 2}
    config = Gemma3Config(text_config=text, vision_config=VISION, mm_tokens_per_image=4)
    model = Gemma3ForConditionalGeneration(config).eval()
    return save(tmp_path / "gemma", model, folders["llama"]), model


def assert_says_the_same(folder: Path, model: torch.nn.Module) -> None:
    """It is the text model within ``model``."""
    loaded = load(folder)
    tokens = list(range(5, 25))
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([tokens])).logits[0, -1].float().numpy()
    (found,) = loaded.open(tokens, Cancellation(), room=0).score(EMPTY)
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())
    assert loaded.description.context_tokens == TEXT["max_position_embeddings"]
    assert loaded.description.end_of_text_ids == (0,)


def test_the_text_model_of_gemma_3_is_loaded(gemma):
    assert_says_the_same(*gemma)


@pytest.mark.parametrize(
    ("is_tied", "says_tied"), [(False, False), (True, True), (False, True)], ids=str
)
def test_a_text_model_within_another_is_loaded(folders, tmp_path, is_tied, says_tied):
    """Whether its output layer is its embedding decides the outer configuration, or the file."""
    torch.manual_seed(1)
    config = LlavaConfig(
        text_config={**TEXT, "model_type": "llama", "tie_word_embeddings": False},
        vision_config={**VISION, "model_type": "siglip_vision_model"},
        image_token_index=59,
        tie_word_embeddings=is_tied,
    )
    model = LlavaForConditionalGeneration(config).eval()
    folder = save(tmp_path / "llava", model, folders["llama"])
    change_json(folder / "config.json", tie_word_embeddings=says_tied)
    assert_says_the_same(folder, model)


def test_a_text_model_that_transformers_does_not_have_by_itself_is_refused(folders, tmp_path):
    vision = {"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "patch_size": 4}
    config = Qwen2VLConfig(text_config=TEXT, vision_config=vision)
    folder = save(tmp_path, Qwen2VLForConditionalGeneration(config), folders["llama"])
    assert "Qwen2VLTextConfig" in refusal(folder)


def test_a_model_with_an_encoder_is_refused(folders, tmp_path):
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 60}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    model = BartForConditionalGeneration(BartConfig(**sizes, **heads, max_position_embeddings=32))
    refusal(save(tmp_path, model, folders["llama"]))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.json", "{"),
        ("config.json", '{"model_type": "llama", "hidden_size": "many"}'),
        ("config.json", '{"model_type": "llama", "rope_parameters": 7}'),
        ("config.json", "[]"),
        ("generation_config.json", "{"),
        ("generation_config.json", "[]"),
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", "[]"),
        (WEIGHTS, ""),
    ],
)
def test_a_broken_file_is_refused_in_one_sentence(copy, file, text):
    (copy / file).write_text(text)
    refusal(copy)


def test_what_fails_while_loading_ends_the_process_with_a_sentence_and_no_traceback(copy):
    change_json(copy / "config.json", rope_parameters=7)
    with Processes() as processes:
        verifier = processes.service("verifier", "--model", str(copy))
        assert str(copy) in verifier.wait_event("cannot start")["reason"]
        assert verifier.wait_exit() == 1
        assert "Traceback" not in verifier.output


# What the files ask of answers


def end_of(folder: Path, generation: object, config: object, tokenizer: str | None) -> set[int]:
    """The end tokens of a model whose files name these."""
    change_json(folder / "config.json", eos_token_id=config)
    change_json(folder / "generation_config.json", eos_token_id=generation)
    change_json(folder / "tokenizer_config.json", eos_token=tokenizer)
    return set(described(folder).end_of_text_ids)


A, B, C = 1, 2, 3
"""The ids of these letters."""


@pytest.mark.parametrize(
    ("generation", "config", "tokenizer", "expected"),
    [
        (None, None, "c", {C}),
        (None, B, "c", {B, C}),
        (A, B, None, {A}),
        ([A, B], None, "c", {A, B, C}),
        ([A, B], C, "b", {A, B}),
    ],
)
def test_answers_end_at_the_end_tokens_of_all_files(copy, generation, config, tokenizer, expected):
    assert end_of(copy, generation, config, tokenizer) == expected


def test_an_end_token_that_no_file_names_is_that_of_the_architecture(copy):
    assert end_of(copy, None, None, None) == {LlamaConfig().eos_token_id}


@pytest.mark.parametrize("wrong", [-1, 60, "</s>", 1.5, True])
def test_an_end_token_that_is_no_id_is_told_and_left_out(copy, caplog, wrong):
    assert end_of(copy, [A, wrong], None, None) == {A}
    (told,) = (
        record
        for record in caplog.records
        if record.message == "end tokens are not in the vocabulary"
    )
    assert told.values == (wrong,)


@pytest.mark.parametrize(
    ("rope", "extended"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100}, 400),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, None),
        ({"rope_type": "linear", "factor": 2.0}, 256),
        ({"rope_type": "default"}, None),
    ],
)
def test_a_context_that_scaling_extends_further_than_is_served_is_told(
    copy, caplog, rope, extended
):
    change_json(copy / "config.json", rope_parameters={"rope_theta": 1e4, **rope})
    assert described(copy).context_tokens == 128
    told = [
        record.context_tokens_by_rope_scaling
        for record in caplog.records
        if record.message == "context is not extended beyond max_position_embeddings"
    ]
    assert told == ([] if extended is None else [extended])


def test_what_a_generation_config_asks_for_in_vain_is_told_by_name(copy):
    asked = {
        "temperature": 0.6,
        "no_repeat_ngram_size": 3,
        "begin_suppress_tokens": [1, 2],
        "length_penalty": 2.0,
        "chat_format": "chatml",
    }
    change_json(copy / "generation_config.json", **asked)
    requests, nowhere, unknown = described(copy).asked_in_vain
    assert requests.startswith("temperature=0.6: requests")
    assert nowhere.startswith("begin_suppress_tokens=[1, 2], no_repeat_ngram_size=3: ")
    assert unknown.startswith("chat_format='chatml': ")


def test_recommended_sampling_parameters_are_described(copy):
    asked = {
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 1.0,
        "min_p": 0.05,
        "typical_p": 3,
        "repetition_penalty": None,
        "max_new_tokens": 64,
    }
    change_json(copy / "generation_config.json", **asked)
    expected = {"temperature": 0.6, "top_k": 20, "min_p": 0.05}
    assert described(copy).generation_defaults == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [("20.0", 20), ("20.5", None), ("1e400", None), (f"{1 << 32}", None), ("true", None)],
)
def test_a_recommended_top_k_is_what_a_request_can_hold_or_only_told(value, expected):
    settings = json.loads(f'{{"top_k": {value}}}')
    found = sampling_defaults(settings)
    assert found == ({} if expected is None else {"top_k": expected})
    assert SamplingParameters(**found).top_k == (expected or 0)
    (told,) = asked_in_vain(settings)
    assert told.startswith("top_k=")


def test_what_an_old_model_asks_for_in_its_config_is_told_too(copy):
    (copy / "generation_config.json").unlink()
    change_json(copy / "config.json", no_repeat_ngram_size=3, num_beams=1)
    (told,) = described(copy).asked_in_vain
    assert told.startswith("no_repeat_ngram_size=3: ")


def test_what_would_change_nothing_is_not_told():
    neutral = {
        **{"do_sample": True, "temperature": 1.0, "top_p": 1, "top_k": 0, "min_p": None},
        **{"repetition_penalty": 1, "num_beams": 1, "suppress_tokens": [], "bos_token_id": 5},
        **{"eos_token_id": [1, 2], "transformers_version": "5.0.0", "use_cache": False},
    }
    assert asked_in_vain(neutral) == ()


def test_long_values_are_shortened():
    (told,) = asked_in_vain({"suppress_tokens": list(range(100_000))})
    assert len(told) < 200


def test_every_setting_of_transformers_is_listed():
    listed = (
        *(generation_config.FOLLOWED, generation_config.WITHOUT_EFFECT),
        *(generation_config.LEFT_TO_REQUESTS, generation_config.NOT_DONE),
    )
    assert set(GenerationConfig().to_dict()) <= set().union(*listed)
    assert sum(map(len, listed)) == len(set().union(*listed))


def test_every_setting_that_is_not_followed_is_in_the_docs():
    text = DOCS.read_text()
    for name in (*generation_config.LEFT_TO_REQUESTS, *generation_config.NOT_DONE):
        assert f"`{name}`" in text, name


def test_a_verifier_tells_at_its_start_what_its_model_asks_for_in_vain(copy):
    change_json(copy / "generation_config.json", repetition_penalty=1.3)
    with Processes() as processes:
        verifier = processes.service("verifier", "--model", str(copy))
        told = verifier.wait_event("generation settings not followed")
        assert told["level"] == logging.getLevelName(logging.WARNING).lower()
        assert told["settings"].startswith("repetition_penalty=1.3: ")
