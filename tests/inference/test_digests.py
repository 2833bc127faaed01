"""The digest by which peers know whether two processes serve the same model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.devices import device
from transformers import AutoConfig, AutoModelForCausalLM

from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget
from specmesh.drafter.__main__ import DrafterService, DrafterSettings
from specmesh.inference.model import ModelDescription
from specmesh.inference.models import digests
from specmesh.inference.models.simulated.empty import EmptyModel
from specmesh.inference.models.simulated.model import ForwardLatency, SimulatedModel
from specmesh.inference.models.transformers_model import TransformersModel

SHIPPED_TOKENIZER = "services/specmesh/models/pycode-0.6m"


def described(name: object, dtype: str = "float32") -> ModelDescription:
    model = TransformersModel.load(str(name), dtype=dtype, device=device(), cache_bytes=1 << 16)
    return model.description


@pytest.fixture
def changed(folders, tmp_path) -> Callable[[Callable[[Path], None]], str]:
    """The digest of a model of which a copy, in a folder of the same name, was changed."""

    def changed(change: Callable[[Path], None]) -> str:
        folder = shutil.copytree(folders["llama"], tmp_path / "elsewhere" / "llama")
        change(folder)
        return described(folder).weights_digest

    return changed


@pytest.fixture(scope="module")
def digest(folders) -> str:
    return described(folders["llama"]).weights_digest


def divide(folder: Path) -> None:
    """Into a file for each few tensors."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size=8_000)
    assert len(list(folder.glob("*.safetensors"))) > 2


def flip_one_bit(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"].view(torch.int32)[3] ^= 1
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def set_norm_eps(folder: Path) -> None:
    config = AutoConfig.from_pretrained(folder)
    config.rms_norm_eps = 1e-3
    config.save_pretrained(folder)


def set_rope_theta(folder: Path) -> None:
    config = AutoConfig.from_pretrained(folder)
    config.rope_parameters = {**config.rope_parameters, "rope_theta": 5e5}
    config.save_pretrained(folder)


def test_digest_does_not_depend_on_the_folder(changed, digest):
    assert changed(lambda folder: None) == digest


def test_digest_does_not_depend_on_how_many_files_hold_the_weights(changed, digest):
    assert changed(divide) == digest


def test_one_bit_of_one_weight_makes_another_digest(changed, digest):
    assert changed(flip_one_bit) != digest


@pytest.mark.parametrize("change", [set_norm_eps, set_rope_theta])
def test_what_is_computed_with_the_weights_makes_another_digest(changed, digest, change):
    assert changed(change) != digest


def test_number_type_is_told_and_is_part_of_the_weights(folders, digest):
    description = described(folders["llama"], "bfloat16")
    assert description.dtype == "bfloat16"
    assert description.weights_digest != digest


def test_large_tensors_are_hashed_in_pieces(folders, digest, monkeypatch):
    monkeypatch.setattr(digests, "PIECE_BYTES", 1000)
    one, other = (described(folders["llama"]).weights_digest for _ in range(2))
    assert one == other
    assert one != digest  # so the pieces were others


def test_folder_has_no_revision_and_a_hub_model_has_its_commit(folders, tmp_path, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    hub = tmp_path / "hub"
    snapshot = hub / "models--nobody--tiny" / "snapshots" / commit
    shutil.copytree(folders["llama"], snapshot)
    (hub / "models--nobody--tiny" / "refs").mkdir()
    (hub / "models--nobody--tiny" / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    description = described("nobody/tiny")
    assert (description.name, description.revision) == ("nobody/tiny", commit)
    assert described(folders["llama"]).revision == ""


def load_guess(backend: str, **settings: object) -> str:
    given = DrafterSettings(backend=backend, tokenizer=SHIPPED_TOKENIZER, **settings)
    return DrafterService(given).load().description.weights_digest


def test_models_without_weights_have_a_digest_of_what_they_guess_by(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("return value")
    counted = load_guess("ngram", corpus=str(tmp_path))
    assert load_guess("ngram", corpus=str(tmp_path)) == counted
    others = {load_guess("ngram", corpus=str(tmp_path), ngram_order=2), load_guess("random")}
    others.add(load_guess("prompt-lookup"))
    text.write_text("return values")
    others.add(load_guess("ngram", corpus=str(tmp_path)))
    assert len({counted, *others}) == 5


def test_simulated_models_have_a_digest_of_what_they_say_not_of_how_fast():
    def digest(speaker, each_s=0.0) -> str:
        return SimulatedModel(speaker, ForwardLatency(0.0, each_s)).description.weights_digest

    target, other = SimulatedTarget(seed=1), SimulatedTarget(seed=2)
    assert digest(target) == digest(target, each_s=1.0)
    speakers = [target, other, *(SimulatedDrafter(each, 0.5) for each in (target, other))]
    speakers += [SimulatedDrafter(target, 0.6), SimulatedDrafter(target, 0.5, salt=1)]
    found = {digest(speaker) for speaker in speakers}
    assert len({*found, EmptyModel.description.weights_digest}) == len(speakers) + 1


def test_arrays_of_other_types_or_shapes_are_others():
    numbers = np.zeros(4, np.int64)
    others = [numbers.reshape(2, 2), numbers.astype(np.int32), numbers.view(np.float64)]
    assert len({digests.digest_of_array(each) for each in [numbers, *others]}) == 4
