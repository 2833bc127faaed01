"""What vLLM keeps of a call whose logits are not finite spoils no other call."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.conformance.calls import request, verify, whole
from tests.e2e.processes import Process
from tests.vllm import address_of, needs_vllm, start_vllm
from transformers import LlamaConfig

from specmesh.decoding.trees.tree import TokenTree

pytestmark = needs_vllm

OVERFLOWING = 59
CACHE = ("--cache-bytes", str(1 << 20))
NUM_TEXTS = 12
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, save_tiny) -> Path:
    """A model that one token makes overflow."""
    folder = tmp_path_factory.mktemp("overflowing") / "llama"
    config = LlamaConfig(
        vocab_size=60,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=512,
        initializer_range=0.3,
        eos_token_id=0,
        tie_word_embeddings=False,
    )
    save_tiny(folder, config)
    tensors = load_file(folder / "model.safetensors")
    tensors[EMBEDDING][OVERFLOWING] = torch.inf
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def replica(folder) -> Iterator[Process]:
    started = start_vllm(*CACHE, folder=folder)
    try:
        address_of(started)
        yield started
    finally:
        started.kill()


@pytest.fixture
async def channel(replica) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address_of(replica)) as channel:
        yield channel


def text(seed: int, length: int) -> list[int]:
    return random.Random(seed).choices(range(1, OVERFLOWING), k=length)


async def next_token(channel, prefix) -> int:
    return (await verify(channel, request(whole(prefix)))).next_token_id


async def assert_overflows(channel, prefix) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="no finite maximum"):
        await next_token(channel, prefix)


async def test_calls_that_share_its_text_read_it_again(channel):
    said = text(1, 100)
    token = await next_token(channel, said)
    drafted = await verify(channel, request(whole(said), TokenTree.chain([token, OVERFLOWING])))
    assert list(drafted.accepted_nodes) == [1]
    assert drafted.next_token_id == await next_token(channel, [*said, token])
    other = text(2, 100)
    await assert_overflows(channel, [*other[:90], OVERFLOWING, *other[91:]])
    await next_token(channel, other[:90])
    await next_token(channel, other)


async def test_calls_that_get_its_blocks_say_what_they_said_before(channel):
    texts = [text(seed, 20 + 9 * seed) for seed in range(NUM_TEXTS)]
    before = [await next_token(channel, each) for each in texts]
    for seed in range(8):
        await assert_overflows(channel, [OVERFLOWING, *text(seed, 480)])
    assert [await next_token(channel, each) for each in texts] == before
