"""Weights and activations in half the bits: from loading to greedy answers."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.devices import device
from torch import nn
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.model import Cancellation, ForwardRequest, ModelNotLoadable
from specmesh.inference.models.cpu.linear import PackedLinear, pack_linears
from specmesh.inference.models.transformers_model import TransformersModel

pytestmark = pytest.mark.numbers

NEVER = Cancellation()
NUM_TOKENS = 24
PROMPTS = [
    [int(token) for token in np.random.default_rng(length).integers(0, 60, length)]
    for length in (1, 9, 30, 50)
]
needs_fp16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_fp16_supported(), reason="oneDNN has no fp16 here"
)


def test_streams_in_fp16_say_what_generate_says(folders, architecture):
    folder = str(folders[architecture])
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float16).eval().to(device())
    plain.generation_config.eos_token_id = None
    plain.generation_config.pad_token_id = 0
    model = TransformersModel.load(folder, dtype="float16", device=device(), cache_bytes=1 << 20)
    answers = [list(prompt) for prompt in PROMPTS]
    for _ in range(NUM_TOKENS):
        sequences = [model.open(answer, NEVER, room=0) for answer in answers]
        rows = model.forward([ForwardRequest(sequence, EMPTY) for sequence in sequences])
        for answer, sequence, logits in zip(answers, sequences, rows, strict=True):
            assert logits is not None
            answer.append(int(logits[-1].argmax()))
            sequence.close(())
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        tokens = torch.tensor([prompt], device=device())
        wanted = plain.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=NUM_TOKENS,
            do_sample=False,
        )
        assert answer == wanted[0].tolist()


def load_spoiled(source, folder, spoil, dtype):
    """Loads a copy of the model in ``source`` whose tensors ``spoil`` has changed."""
    shutil.copytree(source, folder)
    tensors = load_file(folder / "model.safetensors")
    spoil(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return TransformersModel.load(str(folder), dtype=dtype, device=device(), cache_bytes=1 << 20)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("row", [slice(None), 7], ids=["all tokens", "a token"])
def test_weights_that_give_a_token_no_logit_are_refused(folders, tmp_path, row, value):
    def spoil(tensors):
        tensors["lm_head.weight"][row] = value

    with pytest.raises(
        ModelNotLoadable, match=r"computes logits in float32 that are NaN or infinite$"
    ):
        load_spoiled(folders["llama"], tmp_path / "spoiled", spoil, "float32")


def test_of_a_model_that_needs_a_wider_range_than_fp16_has_another_type_is_advised(
    folders, tmp_path
):
    def enlarge(tensors):
        tensors["lm_head.weight"] *= 1e5

    with pytest.raises(ModelNotLoadable, match=r"in float16 that .*; try --dtype bfloat16"):
        load_spoiled(folders["llama"], tmp_path / "half", enlarge, "float16")
    load_spoiled(folders["llama"], tmp_path / "wider", enlarge, "bfloat16")


def test_a_model_may_rule_a_token_out(folders, monkeypatch):
    plain = LlamaForCausalLM.forward

    def forward(self, *args, **kwargs):
        found = plain(self, *args, **kwargs)
        found.logits[..., 7] = -torch.inf
        return found

    monkeypatch.setattr(LlamaForCausalLM, "forward", forward)
    model = TransformersModel.load(
        str(folders["llama"]), dtype="float32", device=device(), cache_bytes=1 << 20
    )
    assert model.description.name == "llama"


@needs_fp16
@pytest.mark.cpu_only("oneDNN lays them out")
def test_layers_in_fp16_are_laid_out_where_the_processor_computes_in_it(monkeypatch):
    model = nn.Sequential(nn.Linear(16, 16, dtype=torch.float16))
    with monkeypatch.context() as older:
        older.setattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", lambda: False)
        pack_linears(model)
        assert type(model[0]) is nn.Linear
    pack_linears(model)
    assert type(model[0]) is PackedLinear
