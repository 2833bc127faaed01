"""Models with a sliding window, which our own engine refuses and vLLM serves: some of their layers
forget what is far back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from tests.conformance.calls import request, verify, whole
from tests.e2e.processes import Process
from tests.inference.conftest import VOCAB_SIZE, Plain
from tests.vllm import address_of, needs_vllm, start_vllm
from transformers import Gemma2Config, Gemma3TextConfig, MistralConfig, PreTrainedConfig

from specmesh.decoding.trees.tree import EMPTY, TokenTree

pytestmark = needs_vllm

WINDOW = 40
CONTEXT_TOKENS = 160
SHAPE = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "max_position_embeddings": CONTEXT_TOKENS,
    "sliding_window": WINDOW,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]
CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "all layers": lambda: MistralConfig(**SHAPE, num_hidden_layers=2),
    "some layers": lambda: Gemma3TextConfig(
        **SHAPE, num_hidden_layers=3, layer_types=ALTERNATING, query_pre_attn_scalar=64
    ),
    "capped scores": lambda: Gemma2Config(
        **SHAPE, num_hidden_layers=2, attn_logit_softcapping=2.0, query_pre_attn_scalar=64
    ),
}
NUM_SESSIONS = 4
MAX_DRAFT = 6


@pytest.fixture(scope="module")
def saved(tmp_path_factory, save_tiny) -> dict[str, Path]:
    """A random model of each kind."""
    root = tmp_path_factory.mktemp("windows")
    folders = {kind: root / kind.replace(" ", "-") for kind in CONFIGS}
    for kind, folder in folders.items():
        save_tiny(folder, CONFIGS[kind]())
    return folders


@pytest.fixture(scope="module")
def replicas(saved) -> Iterator[dict[str, Process]]:
    """A replica of each, with little room for KV, so that blocks are evicted."""
    started = {
        kind: start_vllm("--cache-bytes", str(512 << 10), folder=folder)
        for kind, folder in saved.items()
    }
    try:
        yield started
    finally:
        for each in started.values():
            each.kill()


def own_text(plain: Plain, prompt: list[int], length: int) -> list[int]:
    """``prompt``, and what the model says greedily after it, up to ``length`` tokens."""
    text = list(prompt)
    while len(text) < length:
        text.append(int(plain.after(text).argmax()))
    return text


@pytest.mark.parametrize("kind", CONFIGS)
async def test_sessions_grow_far_beyond_the_window(saved, replicas, kind):
    """By drafts that are right, wrong or right in part, beside one another, and their beginnings
    are asked for once more at the end, when their KV is cached, or evicted."""
    plain = Plain(saved[kind], "eager")
    rng = np.random.default_rng(5)
    common = rng.integers(1, VOCAB_SIZE, 20).tolist()
    prompts = [[*common, *rng.integers(1, VOCAB_SIZE, 12).tolist()] for _ in range(NUM_SESSIONS)]
    texts = [own_text(plain, prompt, CONTEXT_TOKENS) for prompt in prompts]
    assert len({tuple(text) for text in texts}) == NUM_SESSIONS

    async with grpc.aio.insecure_channel(address_of(replicas[kind])) as channel:

        async def step(text, length, num_right, num_wrong):
            """Verify a draft behind ``text[:length]``; what was committed."""
            wrong = [(text[length + num_right] + 1) % VOCAB_SIZE] * num_wrong
            draft = [*text[length : length + num_right], *wrong]
            tree = TokenTree.chain(draft) if draft else EMPTY
            told = await verify(channel, request(whole(text[:length]), tree))
            assert list(told.accepted_nodes) == list(range(1, num_right + 1))
            assert told.next_token_id == text[length + num_right]
            return num_right + 1

        async def session(number, text):
            own = np.random.default_rng([5, number])
            length = len(prompts[number])
            while length < CONTEXT_TOKENS:
                num_right = int(own.integers(0, min(MAX_DRAFT, CONTEXT_TOKENS - 1 - length) + 1))
                room = CONTEXT_TOKENS - 1 - length - num_right
                length += await step(text, length, num_right, min(room, int(own.integers(0, 3))))

        await asyncio.gather(*(session(*each) for each in enumerate(texts)))
        for length in (WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, CONTEXT_TOKENS - 9):
            await asyncio.gather(*(step(text, length, 4, 1) for text in texts))
