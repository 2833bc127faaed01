"""A verifier that vLLM computes for says what our own engine says, bit for bit the same tokens.

The process runs in vLLM's environment, the test and our engine in ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import grpc
import numpy as np
import pytest
from tests.inference.vllm_cases import MAX_DRAFT, SALTS, Case, cases, say
from tests.vllm import address_of, needs_vllm, start_vllm
from tokenizers import Tokenizer
from transformers import LlamaConfig

from specmesh import models
from specmesh.decoding.acceptance import verify
from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling
from specmesh.decoding.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.inference.service.features import VERIFYING
from specmesh.mesh.v1alpha1 import (
    model_service_pb2,
    model_service_pb2_grpc,
    tokens_pb2,
    verifier_pb2,
    verifier_pb2_grpc,
)
from specmesh.serving.errors import error_info
from specmesh.serving.wire import write_sampling, write_tree
from specmesh.v1 import model_pb2

pytestmark = needs_vllm

NUM_CASES = 500
MIXED = 40
"""So many calls at once: more than a step has room for, and than a forward of ours."""
CACHE = ("--cache-bytes", str(8 << 20))
"""1,600 tokens: far fewer than so many calls hold."""
BLOCK_TOKENS = 32


@pytest.fixture(scope="module")
def verifier() -> Iterator[str]:
    """The address of a replica of the shipped target."""
    process = start_vllm(*CACHE)
    try:
        yield address_of(process)
    finally:
        process.kill()


@pytest.fixture
async def channel(verifier):
    async with grpc.aio.insecure_channel(verifier) as channel:
        yield channel


@pytest.fixture(scope="module")
def ours() -> TransformersModel:
    target = str(models.path(models.TARGET))
    return TransformersModel.load(target, dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def texts() -> list[list[int]]:
    """A few texts of 300 tokens, as the target reads them."""
    tokenizer = Tokenizer.from_file(str(models.path(models.TARGET) / "tokenizer.json"))
    text = "\n\n".join(prompt.text for prompt in models.heldout_prompts())
    tokens = tokenizer.encode(text).ids
    return [tokens[start : start + 300] for start in range(0, 2400, 300)]


def prefix_of(tokens, salt=b"") -> tokens_pb2.Prefix:
    return tokens_pb2.Prefix(token_ids=tokens, salt=salt)


async def ask(channel, prefix, tree, sampling, distributions=None, **fields):
    message = verifier_pb2.VerifyRequest(
        prefix=prefix,
        tree=write_tree(tree, distributions),
        sampling=write_sampling(sampling),
        **fields,
    )
    return await verifier_pb2_grpc.VerifierServiceStub(channel).Verify(message, timeout=120)


async def verdict_on(channel, case: Case) -> tuple[list[int], int]:
    tree = TokenTree.chain(case.draft) if case.draft else EMPTY
    response = await ask(channel, prefix_of(case.prefix, case.salt), tree, case.sampling)
    return list(response.accepted_nodes), response.next_token_id


def wrong(asked: Sequence[Case], told: Sequence[tuple[list[int], int]]) -> list[Any]:
    """The cases with another verdict than that of our engine, each with it."""
    return [
        (case, verdict)
        for case, verdict in zip(asked, told, strict=True)
        if verdict != case.verdict
    ]


async def test_verdicts_are_those_of_our_engine_token_by_token(channel, ours, texts):
    """Alone and mixed: greedy and coupled, of every width, over and under the ends of blocks."""
    asked = list(cases(ours, texts, NUM_CASES))
    assert {len(case.draft) for case in asked} == set(range(MAX_DRAFT + 1))
    assert any(case.num_accepted < len(case.draft) for case in asked)
    slots = asyncio.Semaphore(MIXED)

    async def one(case):
        async with slots:
            return await verdict_on(channel, case)

    alone = [await one(case) for case in asked[: NUM_CASES // 10]]
    mixed = await asyncio.gather(*map(one, asked[NUM_CASES // 10 :]))
    assert not wrong(asked, [*alone, *mixed])


@pytest.mark.parametrize("num_bonus_candidates", [0, 4])
async def test_rejection_mode_draws_what_our_engine_draws(
    channel, ours, texts, num_bonus_candidates
):
    dice = np.random.default_rng(5)
    for text in texts:
        prefix, draft = text[:150], text[150:156]
        tree = TokenTree.chain(draft)
        distributions = {
            node: Distribution(np.array([token]), np.array([1.0]))
            for node, token in enumerate(draft)
        }
        sampling = Sampling(seed=int(dice.integers(1 << 40)), mode=AcceptanceMode.REJECTION)
        sequence = ours.open(prefix, Cancellation(), len(tree))
        logits = sequence.score(tree)
        sequence.close(())
        expected = verify(tree, logits, sampling, 150, distributions, num_bonus_candidates)
        response = await ask(
            *(channel, prefix_of(prefix), tree, sampling, distributions),
            num_bonus_candidates=num_bonus_candidates,
        )
        assert list(response.accepted_nodes) == list(expected.accepted_nodes)
        assert response.next_token_id == expected.next_token


async def test_logprobs_are_those_of_our_engine(channel, ours, texts):
    prefix, draft = texts[0][:100], texts[0][100:104]
    tree = TokenTree.chain(draft)
    response = await ask(
        channel, prefix_of(prefix), tree, Sampling(temperature=0), num_top_logprobs=3
    )
    sequence = ours.open(prefix, Cancellation(), len(tree))
    logits = sequence.score(tree).astype(np.float64)
    sequence.close(())
    for row, told in zip(logits, response.logprobs, strict=False):
        logprobs = row - np.log(np.exp(row - row.max()).sum()) - row.max()
        assert list(told.top_token_ids) == np.argsort(-row)[:3].tolist()
        assert list(told.top_logprobs) == pytest.approx(np.sort(logprobs)[:-4:-1], abs=1e-3)


async def test_a_prefix_is_read_once_by_whole_blocks_and_never_for_another_salt(channel, texts):
    """The last token, whose logits are wanted, is always read again."""
    tokens = texts[1][::-1][: 4 * BLOCK_TOKENS]
    sampling = Sampling(temperature=0)

    async def cached(length, salt):
        response = await ask(channel, prefix_of(tokens[:length], salt), EMPTY, sampling)
        return response.cost.num_cached_tokens

    assert await cached(4 * BLOCK_TOKENS, SALTS[0]) == 0
    assert await cached(4 * BLOCK_TOKENS, SALTS[0]) == 7 * BLOCK_TOKENS // 2
    assert await cached(3 * BLOCK_TOKENS + 1, SALTS[0]) == 3 * BLOCK_TOKENS
    assert await cached(4 * BLOCK_TOKENS, SALTS[1]) == 0


async def test_what_was_accepted_stays_cached(channel, ours, texts):
    """The draft's tokens make a block full; what follows finds them."""
    greedy, prefix = Sampling(temperature=0), tuple(texts[3][: 2 * BLOCK_TOKENS - 5])
    (draft,) = say(ours, [prefix], [4], [greedy])
    response = await ask(channel, prefix_of(prefix), TokenTree.chain(draft), greedy)
    assert len(response.accepted_nodes) == 5
    following = (*prefix, *draft, response.next_token_id)
    response = await ask(channel, prefix_of(following), EMPTY, greedy)
    assert response.cost.num_cached_tokens == 2 * BLOCK_TOKENS


async def test_a_prefix_can_be_named_by_its_digest(channel, texts):
    tokens = texts[4][:101]
    whole = await ask(channel, prefix_of(tokens), EMPTY, Sampling(temperature=0))
    length, digest = PrefixChain(tokens).base()
    named = tokens_pb2.Prefix(base_length=length, base_digest=digest, token_ids=tokens[length:])
    again = await ask(channel, named, EMPTY, Sampling(temperature=0))
    assert again.next_token_id == whole.next_token_id
    unknown = tokens_pb2.Prefix(base_length=length, base_digest=b"?" * 16, token_ids=[1])
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await ask(channel, unknown, EMPTY, Sampling(temperature=0))
    assert error_info(raised.value).reason == "PREFIX_UNKNOWN"


async def test_the_context_can_be_filled_to_its_last_token(channel, ours, texts):
    limit = ours.description.context_tokens
    tokens = [*chain(*texts)][:limit]
    tree = TokenTree.chain(tokens[limit - 3 :])
    sequence = ours.open(tokens[: limit - 3], Cancellation(), 3)
    expected = verify(tree, sequence.score(tree), Sampling(temperature=0), limit - 3)
    sequence.close(())
    response = await ask(channel, prefix_of(tokens[: limit - 3]), tree, Sampling(temperature=0))
    assert response.next_token_id == expected.next_token
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await ask(channel, prefix_of(tokens[: limit - 2]), tree, Sampling(temperature=0))
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_call_that_is_cancelled_takes_nothing_of_the_others(channel, ours, texts):
    asked = list(cases(ours, texts, 16))
    long = [[*chain(*texts[number:], *texts[:number])][:1000] for number in range(8)]
    unwanted = [
        asyncio.ensure_future(ask(channel, prefix_of(tokens), EMPTY, Sampling(temperature=0)))
        for tokens in long
    ]
    wanted = [asyncio.ensure_future(verdict_on(channel, case)) for case in asked]
    await wanted[0]
    for call in unwanted:
        call.cancel()
    assert [await call for call in wanted] == [case.verdict for case in asked]
    await asyncio.gather(*unwanted, return_exceptions=True)
    assert await verdict_on(channel, asked[0]) == asked[0].verdict


async def test_trees_are_refused_by_name_and_peers_are_told(channel, ours):
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    info = (await stub.GetModel(model_service_pb2.GetModelRequest(), timeout=20)).model
    assert set(info.features) == set(VERIFYING) - {model_pb2.MODEL_FEATURE_TREES}
    assert info.backend == "vllm"
    assert info.weights_digest == ours.description.weights_digest
    assert info.kv_capacity_tokens > 0
    tree = TokenTree((5, 6), (0, 0))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await ask(channel, prefix_of([1, 2, 3]), tree, Sampling(temperature=0))
    found = error_info(raised.value)
    assert (found.reason, found.metadata["feature"]) == ("UNSUPPORTED_FEATURE", "TREES")


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
    model = TransformersModel.load(str(folder), dtype="float32", device="cpu")
    texts = np.random.default_rng(9).integers(0, 60, (4, 300)).tolist()
    asked = list(cases(model, texts, 64))
    process = start_vllm(*CACHE, "--tensor-parallel-size", "2", folder=folder)
    try:
        async with grpc.aio.insecure_channel(address_of(process)) as channel:
            told = await asyncio.gather(*(verdict_on(channel, case) for case in asked))
    finally:
        process.kill()
    assert not wrong(asked, told)
