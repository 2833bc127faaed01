"""VerifierService over gRPC: decoding's answer, whatever the replica holds."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import grpc
import numpy as np
import pytest
import torch
from tests.inference.drafting import bushy, grow
from tests.inference.rounding import bound

from specmesh.decoding.acceptance import verify
from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.simulated.hashed import SimulatedTarget
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation
from specmesh.inference.models.simulated.empty import EmptyModel
from specmesh.inference.models.simulated.model import ForwardLatency, SimulatedModel
from specmesh.inference.service.growth import DraftShape
from specmesh.inference.service.prefixes import PrefixResolver
from specmesh.mesh.v1alpha1 import (
    model_service_pb2,
    model_service_pb2_grpc,
    tokens_pb2,
    verifier_pb2,
    verifier_pb2_grpc,
)
from specmesh.serving.codec.wire import write_sampling, write_tree
from specmesh.serving.errors import FailedPreconditionStatus, error_info
from specmesh.serving.store.session_store import SessionStore
from specmesh.serving.store.stored_session import Claim, Generated, SessionStart, Writer
from specmesh.v1 import model_pb2
from specmesh.verifier.worthwhile_calls import WorthwhileCalls

NEVER = Cancellation()

PREFIX = [int(token) for token in np.random.default_rng(8).integers(0, 60, 40)]
GREEDY = Sampling(temperature=0)
COUPLED = Sampling(seed=5)
REJECTION = Sampling(seed=5, mode=AcceptanceMode.REJECTION)
MODES = pytest.mark.parametrize(
    "sampling", [GREEDY, COUPLED, REJECTION], ids=["greedy", "coupled", "rejection"]
)


def draft(model, sampling: Sampling, prefix: list[int] = PREFIX):
    """A branching tree, half right: by the model itself, which has not seen the first tokens."""
    *_, level = levels = list(
        grow(model.open(prefix[4:], NEVER), EMPTY, prefix, bushy((0,), 3, 3, 2), sampling)
    )
    distributions = {node: d for some in levels for node, d in some.distributions.items()}
    return level.tree, distributions


def request(prefix: tokens_pb2.Prefix, tree, distributions, sampling) -> verifier_pb2.VerifyRequest:
    return verifier_pb2.VerifyRequest(
        prefix=prefix, tree=write_tree(tree, distributions), sampling=write_sampling(sampling)
    )


def whole(tokens: list[int] = PREFIX) -> tokens_pb2.Prefix:
    return tokens_pb2.Prefix(token_ids=tokens)


def by_base(tokens: list[int] = PREFIX, session_id: str = "") -> tokens_pb2.Prefix:
    length, digest = PrefixChain(tokens).base()
    return tokens_pb2.Prefix(
        base_length=length,
        base_digest=digest,
        token_ids=tokens[length:],
        session_id=session_id,
    )


async def ask(channel, message: verifier_pb2.VerifyRequest) -> verifier_pb2.VerifyResponse:
    return await verifier_pb2_grpc.VerifierServiceStub(channel).Verify(message, timeout=20)


def answer(response: verifier_pb2.VerifyResponse) -> tuple[list[int], int, int]:
    return list(response.accepted_nodes), response.next_token_id, response.next_token_kind


@MODES
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
async def test_answer_is_what_decoding_says(load, serve, architecture, sampling):
    tree, distributions = draft(load(architecture), sampling)
    logits = load(architecture).open(PREFIX, NEVER).score(tree)
    verdict = verify(tree, logits, sampling, len(PREFIX), distributions)
    async with serve(load(architecture)) as channel:
        response = await ask(channel, request(whole(), tree, distributions, sampling))
    kind = "RECOVERED" if verdict.recovered else "BONUS"
    assert answer(response) == (
        list(verdict.accepted_nodes),
        verdict.next_token,
        verifier_pb2.NextTokenKind.Value(f"NEXT_TOKEN_KIND_{kind}"),
    )


async def test_a_model_that_scores_chains_alone_tells_peers_and_refuses_trees(load, serve):
    model = load()
    model.description = replace(model.description, scores_trees=False)
    async with serve(model) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        info = (await stub.GetModel(model_service_pb2.GetModelRequest(), timeout=20)).model
        assert model_pb2.MODEL_FEATURE_TREES not in info.features
        assert model_pb2.MODEL_FEATURE_REJECTION_MODE in info.features
        await ask(channel, request(whole(), TokenTree.chain([5, 6]), {}, GREEDY))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await ask(channel, request(whole(), TokenTree((5, 6), (0, 0)), {}, GREEDY))
    info = error_info(raised.value)
    assert (info.reason, info.metadata["feature"]) == ("UNSUPPORTED_FEATURE", "TREES")


@MODES
@pytest.mark.parametrize("num_top", [0, 5])
async def test_logprobs_are_those_of_the_model_alone(load, serve, plain, num_top, sampling):
    """Whatever the draft, a tree here, and whatever the temperature."""
    architecture = plain.architecture
    tree, distributions = draft(load(architecture), sampling)
    message = request(whole(), tree, distributions, sampling)
    message.num_top_logprobs = num_top
    async with serve(load(architecture)) as channel:
        response = await ask(channel, message)
    tokens = [*tree.tokens_on(response.accepted_nodes), response.next_token_id]
    assert len(response.logprobs) == len(tokens)
    for at, (token, told) in enumerate(zip(tokens, response.logprobs, strict=True)):
        logits = plain.after([*PREFIX, *tokens[:at]])
        row = torch.tensor(logits).log_softmax(dim=0)
        off = 2 * bound(plain.config, logits)  # of a logit, and of the sum over all
        assert told.logprob == pytest.approx(float(row[token]), abs=off)
        best = row.topk(num_top)
        assert list(told.top_token_ids) == best.indices.tolist()
        assert list(told.top_logprobs) == pytest.approx(best.values.tolist(), abs=off)


async def test_logprobs_of_a_whole_tree_are_those_of_the_model_alone(load, serve, plain):
    tree, _ = draft(load(plain.architecture), COUPLED)
    message = request(whole(), tree, {}, COUPLED)
    message.num_node_logprobs = 2
    async with serve(load(plain.architecture)) as channel:
        response = await ask(channel, message)
    assert len(response.node_logprobs) == len(tree)
    for node, told in enumerate(response.node_logprobs, start=1):
        *path, token = tree.tokens_on(tree.path(node))
        logits = plain.after([*PREFIX, *path])
        row = torch.tensor(logits).log_softmax(dim=0)
        assert told.logprob == pytest.approx(float(row[token]), abs=2 * bound(plain.config, logits))
        assert list(told.top_token_ids) == row.topk(2).indices.tolist()


async def test_models_that_compute_nothing_have_logprobs_too(serve):
    """One token is certain, or all are alike."""
    certain = SimulatedModel(SimulatedTarget(vocab_size=60), ForwardLatency(0, 0))
    alike = [-math.log(256)] * 3
    for model, expected in [(certain, [0, -100, -100]), (EmptyModel(), alike)]:
        message = request(whole(), EMPTY, {}, COUPLED)
        message.num_top_logprobs = 3
        async with serve(model) as channel:
            response = await ask(channel, message)
        (told,) = response.logprobs
        assert told.logprob == told.top_logprobs[0]
        assert list(told.top_logprobs) == pytest.approx(expected)


async def test_logprobs_come_only_if_asked_for(load, serve):
    async with serve(load()) as channel:
        response = await ask(channel, request(whole(), EMPTY, {}, GREEDY))
    assert not response.logprobs


@MODES
async def test_answer_is_the_same_on_any_replica_whatever_it_holds(load, serve, sampling):
    tree, distributions = draft(load(), sampling)
    message = request(whole(), tree, distributions, sampling)
    longer = request(whole([*PREFIX, *range(10)]), EMPTY, {}, sampling)
    other = request(whole([*PREFIX[:19], 1, 2]), TokenTree((1, 2), (0, 0)), {}, GREEDY)
    async with serve(load()) as one, serve(load(cache_tokens=1100)) as another:
        first = await ask(one, message)
        answers = [answer(first)]
        for channel, before in [(one, message), (one, longer), (another, other), (one, other)]:
            await ask(channel, before)
            answers.append(answer(await ask(channel, message)))
    assert answers == [answers[0]] * 5


async def test_rounds_of_verification_write_the_targets_own_text(load, serve):
    """By base and tail alone, each round on what the round before has left in the cache."""
    alone = list(grow(load().open(PREFIX, NEVER), EMPTY, PREFIX, DraftShape((0,), 12), COUPLED))
    text = list(PREFIX)
    async with serve(load()) as channel:
        prefix = whole()
        while len(text) < len(PREFIX) + 12:
            tree, _ = draft(load(), COUPLED, text)
            response = await ask(channel, request(prefix, tree, {}, COUPLED))
            text += [*tree.tokens_on(response.accepted_nodes), response.next_token_id]
            prefix = by_base(text)
    assert text[len(PREFIX) :][:12] == list(alone[-1].tree.token_ids)


async def test_cost_tells_what_was_held_and_what_was_computed(load, serve):
    message = request(whole(), TokenTree.chain([1, 2, 3]), {}, GREEDY)
    async with serve(load()) as channel:
        first = (await ask(channel, message)).cost
        second = (await ask(channel, message)).cost
    # To whole blocks: of 40 tokens, 39 come before the one whose logits are wanted.
    assert (first.num_cached_tokens, first.num_computed_tokens) == (0, 32 + 1 + 3)
    assert (second.num_cached_tokens, second.num_computed_tokens) == (32, 1 + 3)
    for cost in (first, second):
        assert (cost.num_batch_calls, cost.num_batch_tokens) == (1, 1 + 3)
    assert first.forward_ms > 0
    assert first.queue_ms > 0


async def test_cost_tells_which_calls_shared_a_forward(load, serve):
    message = request(whole(), TokenTree.chain([1, 2, 3]), {}, GREEDY)
    async with serve(load()) as channel:
        responses = await asyncio.gather(*(ask(channel, message) for _ in range(6)))
    sizes = [(each.cost.num_batch_calls, each.cost.num_batch_tokens) for each in responses]
    assert all(tokens == calls * 4 for calls, tokens in sizes)
    assert all(sizes.count(size) % size[0] == 0 for size in sizes)


async def test_cost_tells_how_many_calls_should_share_a_forward(load, serve, monkeypatch):
    seen = []
    monkeypatch.setattr(WorthwhileCalls, "learn", lambda _, *call: seen.append(call) or 37)
    message = request(whole(), TokenTree.chain([1, 2, 3]), {}, GREEDY)
    async with serve(load()) as channel:
        responses = await asyncio.gather(*(ask(channel, message) for _ in range(6)))
    assert {each.cost.num_worthwhile_calls for each in responses} == {37}
    assert all(milliseconds > 0 for _, milliseconds in seen)
    # All calls of a forward have the same object, by which it counts once.
    by_forward = Counter(id(forward) for forward, _ in seen)
    assert all(by_forward[id(forward)] == forward.num_calls for forward, _ in seen)


async def refusal(channel, message) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await ask(channel, message)
    return refused.value


WRITER = Writer(1, "test")


def stored_session(prompt: list[int]) -> SessionStart:
    return SessionStart(
        Claim("session", b"secret", ""), model="", request=b"", prompt=tuple(prompt)
    )


async def test_lost_base_is_read_from_the_session(load, serve, redis_url):
    store = SessionStore.from_url(redis_url, timeout_s=10)
    await store.put(stored_session(PREFIX[:20]), WRITER, Generated(tuple(PREFIX[20:36])))
    await store.aclose()
    async with serve(load(), redis_url) as channel:
        known = await ask(channel, request(by_base(session_id="session"), EMPTY, {}, COUPLED))
        expected = await ask(channel, request(whole(), EMPTY, {}, COUPLED))
        assert answer(known) == answer(expected)


@pytest.mark.parametrize("stored", [None, PREFIX[:20], [*PREFIX[:31], 59, 59]])
async def test_session_that_does_not_hold_the_base_is_no_help(load, serve, redis_url, stored):
    if stored is not None:
        store = SessionStore.from_url(redis_url, timeout_s=10)
        await store.put(stored_session(stored), WRITER, Generated())
        await store.aclose()
    async with serve(load(), redis_url) as channel:
        message = request(by_base(session_id="session"), EMPTY, {}, COUPLED)
        assert error_info(await refusal(channel, message)).reason == "PREFIX_UNKNOWN"


async def test_store_that_is_away_is_no_help_and_no_harm(load, serve, tmp_path):
    async with serve(load(), f"unix://{tmp_path}/nobody.sock") as channel:
        message = request(by_base(session_id="session"), EMPTY, {}, COUPLED)
        assert error_info(await refusal(channel, message)).reason == "PREFIX_UNKNOWN"
        await ask(channel, request(whole(), EMPTY, {}, COUPLED))


async def test_store_that_hangs_holds_up_no_call_and_helps_again_once_it_goes_on(start_redis):
    redis = start_redis()
    store = SessionStore.from_url(redis.url, timeout_s=60)
    await store.put(stored_session(PREFIX[:20]), WRITER, Generated(tuple(PREFIX[20:36])))
    prefixes, message = PrefixResolver(EmptyModel(), store), by_base(session_id="session")
    redis.pause()
    async with asyncio.timeout(20):
        with pytest.raises(FailedPreconditionStatus, match="knows no prefix"):
            await prefixes.resolve(message)
        redis.resume()
        found = None
        while found is None:
            with suppress(FailedPreconditionStatus):
                found = await prefixes.resolve(message)
    assert len(found) == len(PREFIX)
    await store.aclose()


async def test_model_that_computes_nothing_answers_too(serve):
    async with serve(EmptyModel()) as channel:
        response = await ask(channel, request(whole(), TokenTree.chain([1]), {}, COUPLED))
    assert response.next_token_id < 256
