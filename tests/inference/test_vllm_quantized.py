"""Quantized models, of which only vLLM loads the weights: what they are known by, and what they
say."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.conformance.calls import request, verify, whole
from tests.e2e.processes import Process
from tests.inference.conftest import Plain
from tests.vllm import PYTHON, address_of, needs_vllm, start_vllm
from transformers import LlamaConfig

from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.model import ModelDescription, ModelNotLoadable
from specmesh.inference.models.loading import read_files, read_model
from specmesh.inference.models.vllm.loading.quantized import describe_quantized
from specmesh.mesh.v1alpha1 import model_service_pb2, model_service_pb2_grpc

WEIGHTS = "model.safetensors"
SCHEME = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "strategy": "token",
                "symmetric": True,
                "dynamic": True,
            },
        }
    },
}
"""Eight bits for weights, by output channel, and for what they are multiplied with, by token."""
LARGEST = 127
NUM_MOST = 60 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 36
"""The least number of 72 tokens; vLLM's kernels for processors without AVX-512 round more."""
FEW_TOKENS = 5


CONFIG = LlamaConfig(
    vocab_size=60,
    hidden_size=128,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=64,  # its attention on CPUs has no kernel for smaller ones
    max_position_embeddings=128,
    initializer_range=0.3,
    eos_token_id=0,
)


@pytest.fixture(scope="module")
def plain_folder(save_tiny, tmp_path_factory) -> Path:
    """A tiny model."""
    folder = tmp_path_factory.mktemp("plain") / "llama"
    save_tiny(folder, CONFIG)
    return folder


@pytest.fixture(scope="module")
def folder(plain_folder, tmp_path_factory) -> Path:
    """The same in eight bits."""
    folder = tmp_path_factory.mktemp("quantized") / "llama"
    return quantize(shutil.copytree(plain_folder, folder))


def quantize(folder: Path) -> Path:
    stored = {}
    for name, tensor in load_file(folder / WEIGHTS).items():
        stored[name] = tensor
        if "_proj." in name:
            scale = tensor.abs().amax(dim=1, keepdim=True) / LARGEST
            stored[name] = (tensor / scale).round().to(torch.int8)
            stored[f"{name}_scale"] = scale
    save_file(stored, folder / WEIGHTS, metadata={"format": "pt"})
    change_config(folder, lambda config: config.update(quantization_config=SCHEME))
    return folder


def change_config(folder: Path, change: Callable[[dict], None]) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))


def described(folder: Path) -> ModelDescription:
    files = read_files(str(folder))
    assert files.is_quantized
    return describe_quantized(files, "float32", None)


def test_what_peers_are_told_needs_no_weights_loaded(folder, plain_folder):
    told = described(folder)
    plain = read_model(str(plain_folder), "float32", "cpu", None)
    expected = plain.describe("float32", None, None)
    assert told.weights_digest != expected.weights_digest
    for field in ("name", "num_parameters", "vocab_size", "context_tokens", "end_of_text_ids"):
        assert getattr(told, field) == getattr(expected, field), field
    assert told.tokenizer_json == expected.tokenizer_json


def test_the_digest_is_that_of_the_tensors_whatever_files_they_are_in(folder, tmp_path):
    divided = shutil.copytree(folder, tmp_path / "llama")
    tensors = load_file(divided / WEIGHTS)
    (divided / WEIGHTS).unlink()
    for number in range(3):
        part = {name: tensors[name] for name in sorted(tensors)[number::3]}
        save_file(part, divided / f"model-{number}-of-3.safetensors")
    files = {
        name: f"model-{number % 3}-of-3.safetensors" for number, name in enumerate(sorted(tensors))
    }
    (divided / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    save_file({"left": torch.ones(3)}, divided / "left-over.safetensors")
    assert described(divided).weights_digest == described(folder).weights_digest


def flip_a_bit(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors["model.layers.0.mlp.up_proj.weight"][3, 4] ^= 1
    save_file(tensors, folder / WEIGHTS)


def quantize_otherwise(folder: Path) -> None:
    change_config(folder, lambda config: config["quantization_config"].update(ignore=[]))


@pytest.mark.parametrize("change", [flip_a_bit, quantize_otherwise])
def test_other_weights_or_settings_have_another_digest(folder, tmp_path, change):
    other = shutil.copytree(folder, tmp_path / "llama")
    change(other)
    assert described(other).weights_digest != described(folder).weights_digest


def test_a_folder_without_weights_is_named(folder, tmp_path):
    empty = shutil.copytree(folder, tmp_path / "llama")
    (empty / WEIGHTS).unlink()
    with pytest.raises(ModelNotLoadable, match=f"{empty}.*safetensors"):
        described(empty)


PRETEND_AMX = """
import sys, torch
from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.vllm.model import VllmModel

torch.cpu._is_amx_tile_supported = lambda: True
options = {"device": "cpu", "num_threads": 1, "cache_bytes": 1 << 20, "tensor_parallel": 1}
try:
    VllmModel.load(sys.argv[1], dtype="float32", chat_template=None, **options)
except ModelNotLoadable as error:
    print("refused:", error)
"""
"""vLLM then takes its kernels for AMX, which look at the number type before they compute."""


@needs_vllm
def test_a_number_type_that_the_processors_kernels_do_not_take_is_refused_at_start(folder):
    command = [str(PYTHON), "-c", PRETEND_AMX, str(folder)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False).stdout
    if "no attribute 'convert_weight_packed'" in told:
        pytest.skip("vLLM's build for processors without AVX-512 has no kernels for AMX")
    assert f"refused: vLLM cannot compute '{folder}' in float32: on this processor" in told
    assert "--dtype bfloat16" in told


HAS_AMX = torch.cpu._is_amx_tile_supported()


@pytest.fixture(scope="module")
def replica(folder) -> Iterator[Process]:
    """What vLLM makes of it."""
    dtype = "bfloat16" if HAS_AMX else "float32"
    started = start_vllm("--cache-bytes", str(1 << 20), "--dtype", dtype, folder=folder)
    try:
        address_of(started)
        yield started
    finally:
        started.kill()


@needs_vllm
async def test_a_draft_is_judged_by_what_the_replica_says_token_by_token(
    replica, folder, plain_folder
):
    """And that is nearly what the model says in 32 bits."""
    plain, told_tokens, num_same = Plain(plain_folder), set(), 0
    async with grpc.aio.insecure_channel(address_of(replica)) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        told = (await stub.GetModel(model_service_pb2.GetModelRequest())).model
        assert told.weights_digest == described(folder).weights_digest
        for first in range(1, 13):
            prefix = list(range(first, first + 20))
            own = []
            for _ in range(6):
                response = await verify(channel, request(whole([*prefix, *own])))
                own.append(response.next_token_id)
            draft = [*own[:4], (own[4] + 1) % told.vocab_size]
            response = await verify(channel, request(whole(prefix), TokenTree.chain(draft)))
            assert list(response.accepted_nodes) == [1, 2, 3, 4]
            assert response.next_token_id == own[4]
            told_tokens.update(own)
            num_same += sum(
                int(plain.after([*prefix, *own[:index]]).argmax()) == token
                for index, token in enumerate(own)
            )
    assert len(told_tokens) > FEW_TOKENS
    assert num_same > NUM_MOST
