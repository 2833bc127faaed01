"""A model that vLLM divides among processes; whole ones are held to ``tests/conformance``.

The processes run in vLLM's environment, the test and our engine in ours.
"""

from __future__ import annotations

import asyncio

import grpc
import numpy as np
from tests.conformance.calls import verdict_on
from tests.conformance.cases import chains
from tests.vllm import CACHE, address_of, needs_vllm, start_vllm
from transformers import LlamaConfig

from specmesh.inference.models.transformers_model import TransformersModel

pytestmark = needs_vllm


async def test_a_model_that_two_processes_share_says_the_same(tmp_path, save_tiny):
    """Of random weights, since the shipped one has heads that can't be halved."""
    folder = tmp_path / "llama"
    config = LlamaConfig(
        vocab_size=60,
        hidden_size=128,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=512,
        initializer_range=0.3,
        eos_token_id=0,
    )
    save_tiny(folder, config)
    process = start_vllm(*CACHE, "--tensor-parallel-size", "2", folder=folder)
    try:
        model = TransformersModel.load(str(folder), dtype="float32", device="cpu")
        texts = np.random.default_rng(9).integers(0, 60, (4, 300)).tolist()
        asked = [*chains(model, texts, 32, "greedy"), *chains(model, texts, 32, "coupled")]
        async with grpc.aio.insecure_channel(address_of(process)) as channel:
            told = await asyncio.gather(*(verdict_on(channel, case, 60) for case in asked))
    finally:
        process.kill()
    wrong = [pair for pair in zip(asked, told, strict=True) if pair[1] != pair[0].expected]
    assert not wrong
