"""Many sessions at once on a real model: exact, within the memory, and nothing left behind."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc
import numpy as np
import pytest

from specmesh.decoding.acceptance import verify
from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation
from specmesh.mesh.v1alpha1 import (
    drafter_pb2,
    drafter_pb2_grpc,
    tokens_pb2,
    verifier_pb2,
    verifier_pb2_grpc,
)
from specmesh.serving.codec.wire import write_sampling, write_tree
from specmesh.serving.errors import error_info

NEVER = Cancellation()
SAMPLING = Sampling(temperature=0.9, seed=11)
GUILTY = 59
SYSTEM = [int(token) for token in np.random.default_rng(1).integers(0, 60, 40)]
"""How every other prompt begins."""


class Oracle:
    """What the target says, from a model that has all the room and one session at a time."""

    def __init__(self, model) -> None:
        self._model = model

    def verdict(self, prefix: list[int], tree: TokenTree) -> tuple[tuple[int, ...], int]:
        sequence = self._model.open(prefix, NEVER, len(tree))
        verdict = verify(tree, sequence.score(tree), SAMPLING, len(prefix))
        sequence.close(())
        return verdict.accepted_nodes, verdict.next_token


class Session:
    """One client: verifies what is half right and goes on from the answer."""

    def __init__(self, number: int, channel: grpc.aio.Channel, oracle: Oracle) -> None:
        self._random = np.random.default_rng(number)
        beginning = SYSTEM if number % 2 else []
        self._prefix = [*beginning, *self._tokens(self._random.integers(20, 40))]
        self._verifier = verifier_pb2_grpc.VerifierServiceStub(channel)
        self._drafter = drafter_pb2_grpc.DrafterServiceStub(channel)
        self._oracle = oracle

    async def verify_a_few(self, num_rounds: int) -> None:
        for _ in range(num_rounds):
            tree = self._guess()
            answer = await self._verifier.Verify(self._request(tree), timeout=60)
            got = tuple(answer.accepted_nodes), answer.next_token_id
            assert got == self._oracle.verdict(self._prefix, tree)
            self._prefix += [*tree.tokens_on(got[0]), got[1]]

    async def give_up(self) -> None:
        """Ask for things and cancel them somewhere in the middle."""
        call = self._verifier.Verify(self._request(self._guess()), timeout=60)
        draft = self._drafter.Draft(
            drafter_pb2.DraftRequest(
                prefix=tokens_pb2.Prefix(token_ids=self._prefix),
                depth=20,
                sampling=write_sampling(SAMPLING),
            ),
            timeout=60,
        )
        await asyncio.sleep(float(self._random.exponential(0.01)))
        call.cancel()
        draft.cancel()
        with suppress(asyncio.CancelledError):
            await call

    def _guess(self) -> TokenTree:
        """What the target says, and other tokens beside it."""
        _, first = self._oracle.verdict(self._prefix, EMPTY)
        _, second = self._oracle.verdict([*self._prefix, first], EMPTY)
        wrong, third = self._tokens(2)
        if wrong == first:
            return TokenTree.chain([first, second, third])
        return TokenTree((wrong, first, second, third), (0, 0, 2, 3))

    def _request(self, tree: TokenTree) -> verifier_pb2.VerifyRequest:
        return verifier_pb2.VerifyRequest(
            prefix=tokens_pb2.Prefix(token_ids=self._prefix),
            tree=write_tree(tree),
            sampling=write_sampling(SAMPLING),
        )

    def _tokens(self, count: int) -> list[int]:
        return [int(token) for token in self._random.integers(0, 60, count)]


@pytest.mark.parametrize("architecture", ["llama"])
async def test_sessions_that_want_three_times_the_memory_are_all_answered_exactly(
    load, serve, architecture
):
    oracle = Oracle(load(architecture))
    num_sessions = 16  # of up to 6 blocks each
    model = load(architecture, cache_tokens=32 * BLOCK_TOKENS, chunk_tokens=48)
    async with serve(model) as channel:
        sessions = [Session(number, channel, oracle) for number in range(num_sessions)]
        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(session.verify_a_few(4))
            for number in range(12):
                group.create_task(Session(100 + number, channel, oracle).give_up())
    assert model.pool.num_used == 0
    assert model.pool.num_free + model.pool.num_cached == model.pool.num_blocks == 32
    assert model.pool.num_evicted > 0
    assert model.pool.num_hit_tokens > 0


async def test_failed_forwards_lose_nothing_but_the_call_that_makes_them_fail(
    load, serve, monkeypatch
):
    """What they wrote to the cache before they failed harms nobody."""
    model, oracle = load(cache_tokens=64 * BLOCK_TOKENS), Oracle(load())
    pack, compute, parts, failed = model.pack, model.passes.logits, [], []

    def see(packed, copies):
        parts[:] = packed
        return pack(packed, copies)

    def fail_midway(batch, wanted, is_unwanted):
        logits = compute(batch, wanted, is_unwanted)
        if len(parts) > 1 or list(batch.token_ids).count(GUILTY) > 20:
            failed.append(len(parts))
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return logits

    monkeypatch.setattr(model, "pack", see)
    monkeypatch.setattr(model.passes, "logits", fail_midway)
    request = verifier_pb2.VerifyRequest(
        prefix=tokens_pb2.Prefix(token_ids=[GUILTY] * 40), sampling=write_sampling(SAMPLING)
    )
    async with serve(model) as channel:
        verifier = verifier_pb2_grpc.VerifierServiceStub(channel)
        # On a busy machine calls may come one after the other, and share no forward.
        while max(failed, default=0) < 2:
            async with asyncio.TaskGroup() as group:
                for number in range(4):
                    group.create_task(Session(number, channel, oracle).verify_a_few(3))
                for _ in range(3):
                    with pytest.raises(grpc.aio.AioRpcError) as refusal:
                        await verifier.Verify(request, timeout=60)
                    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                    assert error_info(refusal.value).reason == "OUT_OF_MEMORY"
    assert model.pool.num_used == 0


async def test_what_never_fits_is_refused_with_the_reason(load, serve):
    model = load(cache_tokens=4 * BLOCK_TOKENS)
    async with serve(model) as channel:
        request = verifier_pb2.VerifyRequest(
            prefix=tokens_pb2.Prefix(token_ids=[1] * 70), sampling=write_sampling(SAMPLING)
        )
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await verifier_pb2_grpc.VerifierServiceStub(channel).Verify(request, timeout=10)
    assert refusal.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    info = error_info(refusal.value)
    assert info is not None
    assert info.reason == "KV_CACHE_TOO_SMALL"
    assert info.metadata == {"num_tokens": "70", "kv_capacity_tokens": "64"}
