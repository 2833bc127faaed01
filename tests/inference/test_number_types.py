"""Weights and activations in half the bits: from loading to greedy answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.devices import device
from torch import nn
from transformers import AutoModelForCausalLM

from specmesh.decoding.trees.tree import EMPTY
from specmesh.inference.model import Cancellation, ForwardRequest
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
