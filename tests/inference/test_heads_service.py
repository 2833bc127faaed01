"""Drafts that come with verdicts, over gRPC: what heads alone draft, whoever else is served."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import grpc
import numpy as np
import pytest
import torch
from tests.conformance.calls import violations
from tests.conformance.wrong_fields import VALID
from tests.devices import device
from tests.inference.conftest import tiny_configs
from tests.inference.drafting import bushy, grow
from tests.inference.random_heads import MAX_DEPTH, save_random_eagle3, save_random_heads
from tests.inference.rounding import bound
from tests.inference.test_verify_service import MODES, PREFIX, draft, request, whole
from tests.inference.unpaged_head import Unpaged
from transformers import AutoModelForCausalLM

from specmesh.decoding.prefix import BLOCK_TOKENS
from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.heads.target_with_heads import TargetWithHeads
from specmesh.inference.model import Cancellation, ForwardRequest, ModelNotLoadable
from specmesh.inference.models.heads.serving import serve_heads
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.inference.service.growth import DraftShape, GrowingDraft
from specmesh.mesh.v1alpha1 import (
    model_service_pb2,
    model_service_pb2_grpc,
    verifier_pb2,
    verifier_pb2_grpc,
)
from specmesh.serving.codec.draft_rules import read_growth, read_stop
from specmesh.v1 import model_pb2

GREEDY = Sampling(temperature=0)
NEXT_DRAFT = {
    "depth": 4,
    "growth": {"max_nodes": 8, "least_worth": 0.001},
    "stop": {"below": 0.0, "slope": 1.0},
    "num_choices": 8,
    "seed": 77,
}


@pytest.fixture(scope="module")
def heads_folders(folders, tmp_path_factory):
    root = tmp_path_factory.mktemp("heads")
    save = {"recurrent": save_random_heads, "eagle3": save_random_eagle3}
    return {
        (name, kind): save[kind](folders[name], root / name / kind)
        for name in folders
        for kind in save
    }


@pytest.fixture(scope="module", params=["recurrent", "eagle3"])
def kind(request):
    """Heads to whom a state is all of the text, or that attend to it."""
    return request.param


@pytest.fixture(scope="module")
def load_with_heads(folders, heads_folders, kind):
    def load(
        architecture: str = "llama", heads_of: str | None = None, cache_bytes: int = 1 << 23
    ) -> TargetWithHeads:
        model = TransformersModel.load(
            str(folders[architecture]),
            dtype="float32",
            device=device(),
            cache_bytes=cache_bytes,
            heads_for=partial(serve_heads, heads_folders[heads_of or architecture, kind]),
        )
        return TargetWithHeads(model, model.heads)

    return load


class UnpagedState:
    """A head to whom a state is all of the text, after transformers' own model, a token at a
    time."""

    def __init__(self, folder, heads) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder).eval().to(device())
        self._heads = heads

    @torch.inference_mode()
    def after(self, text: Sequence[int], path: Sequence[int]) -> np.ndarray:
        """The logits of heads that begin below the last token of ``text``, after ``path``."""
        out = self._model(torch.tensor([text[:-1]], device=device()), output_hidden_states=True)
        states = self._heads.begin(out.hidden_states[-1][0, -1:])
        for depth, token in enumerate((text[-1], *path)):
            row = torch.tensor([[token], [depth]], device=device())
            logits, states = self._heads.step(states, *row)
        return logits[0].cpu().numpy()


class Alone:
    """The drafts of heads that are alone with a text."""

    def __init__(self, heads) -> None:
        self._heads = heads

    def draft(self, text: Sequence[int], asked: dict, sampling: Sampling) -> TokenTree:
        """The tree that a request asks for below ``text``."""
        message = verifier_pb2.NextDraft(**asked)
        stop, growth = read_stop(message.stop), read_growth(message.growth, 1024)
        shape = DraftShape((0,), message.depth, message.num_choices, stop, growth=growth)
        growing = GrowingDraft(EMPTY, shape, sampling, LogitProcessor(sampling, text))
        first = 0
        while not growing.ended:
            tree = growing.tree
            paths = [tree.tokens_on(tree.path(node)) for node in range(first, len(tree) + 1)]
            first = len(tree) + 1
            growing.grow(np.stack([self._heads.after(text, path) for path in paths]))
        return growing.tree


@pytest.fixture(scope="module")
def alone(folders, load_with_heads, kind):
    def plain(name):
        if kind == "eagle3":
            return Unpaged(folders[name])
        return UnpagedState(folders[name], load_with_heads(name)._heads._heads)

    return {name: Alone(plain(name)) for name in ("llama", "gpt2")}


async def ask(channel, message: verifier_pb2.VerifyRequest) -> verifier_pb2.VerifyResponse:
    return await verifier_pb2_grpc.VerifierServiceStub(channel).Verify(message, timeout=20)


def asking(message: verifier_pb2.VerifyRequest, **changes) -> verifier_pb2.VerifyRequest:
    """``message`` with a draft asked for."""
    asked = verifier_pb2.VerifyRequest()
    asked.CopyFrom(message)
    asked.next_draft.CopyFrom(verifier_pb2.NextDraft(**NEXT_DRAFT | changes))
    return asked


def text_of(tree: TokenTree, response: verifier_pb2.VerifyResponse) -> list[int]:
    return [*PREFIX, *tree.tokens_on(response.accepted_nodes), response.next_token_id]


def right_tree(model, sampling: Sampling):
    """The target's own tokens, with others beside them."""
    shape = bushy((0,), 3, 3, 2)
    *_, level = levels = list(
        grow(model.open(PREFIX, Cancellation()), EMPTY, PREFIX, shape, sampling)
    )
    return level.tree, {node: d for some in levels for node, d in some.distributions.items()}


def drafted(response: verifier_pb2.VerifyResponse) -> TokenTree:
    message = response.next_draft
    return TokenTree(tuple(message.token_ids), tuple(message.parents))


def seeded(sampling: Sampling) -> Sampling:
    return Sampling(sampling.temperature, seed=NEXT_DRAFT["seed"], mode=sampling.mode)


@MODES
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
async def test_a_verdict_brings_what_heads_draft_after_it(
    load_with_heads, serve, alone, architecture, sampling
):
    model = load_with_heads(architecture)
    tree, distributions = right_tree(model, sampling)
    message = request(whole(), tree, distributions, sampling)
    async with serve(model) as channel:
        plain = await ask(channel, message)
        response = await ask(channel, asking(message))
    assert not plain.HasField("next_draft")
    assert (response.accepted_nodes, response.next_token_id) == (
        plain.accepted_nodes,
        plain.next_token_id,
    )
    assert len(response.accepted_nodes) > 0  # so that the draft begins inside the tree
    expected = alone[architecture].draft(text_of(tree, response), NEXT_DRAFT, seeded(sampling))
    assert drafted(response) == expected
    assert 0 < len(expected) <= 8
    parents = {each.node for each in response.next_draft.draft_distributions}
    assert parents == (set(expected.parents) if sampling.mode.name == "REJECTION" else set())
    assert response.next_draft.cost.forward_ms > 0
    assert response.next_draft.cost.num_computed_tokens > 0
    assert response.next_draft.cost.num_batch_calls == 1


async def test_a_draft_without_growth_is_a_chain_as_deep_as_asked(load_with_heads, serve, alone):
    model = load_with_heads()
    chain = {"growth": None, "stop": None, "depth": 3}
    async with serve(model) as channel:
        response = await ask(channel, asking(request(whole(), EMPTY, {}, GREEDY), **chain))
    assert drafted(response).depths == (0, 1, 2, 3)
    assert drafted(response).is_chain


async def test_calls_that_draft_and_calls_that_do_not_share_the_engine(
    load_with_heads, serve, alone
):
    model = load_with_heads()
    trees = {seed: draft(model, Sampling(seed=seed)) for seed in range(12)}
    async with serve(model) as channel:
        responses = await asyncio.gather(
            *(
                ask(channel, asking(message) if seed % 3 else message)
                for seed, (tree, distributions) in trees.items()
                for message in [request(whole(), tree, distributions, Sampling(seed=seed))]
            )
        )
    for (seed, (tree, _)), response in zip(trees.items(), responses, strict=True):
        assert response.HasField("next_draft") is bool(seed % 3)
        if seed % 3:
            text = text_of(tree, response)
            assert drafted(response) == alone["llama"].draft(
                text, NEXT_DRAFT, seeded(Sampling(seed=seed))
            )


async def test_a_draft_ends_where_heads_or_the_context_do(load_with_heads, serve):
    model = load_with_heads()
    deep = {"depth": 200, "growth": {"max_nodes": 60, "least_worth": 0.01}}
    sure = Sampling(temperature=1e-3, seed=5)  # second choices are worth nothing
    limit = model.description.context_tokens
    async with serve(model) as channel:
        for length, expected in [(40, MAX_DEPTH), (limit - 3, 2), (limit - 1, 0), (limit, 0)]:
            message = request(whole([7] * length), EMPTY, {}, sure)
            response = await ask(channel, asking(message, **deep))
            assert max(drafted(response).depths) == expected


async def test_calls_begin_once_there_is_room_for_their_drafts_too(load_with_heads, serve):
    model = load_with_heads(cache_bytes=6 * BLOCK_TOKENS * 512)
    assert model.pool.capacity_tokens >= 6 * BLOCK_TOKENS
    messages = [asking(request(whole([7 + n] * 40), EMPTY, {}, GREEDY)) for n in range(6)]
    async with serve(model) as channel:
        responses = await asyncio.gather(*(ask(channel, message) for message in messages))
    assert all(drafted(response) for response in responses)


async def test_without_room_for_what_heads_keep_a_verdict_comes_alone(
    load_with_heads, serve, kind, caplog
):
    model = load_with_heads(cache_bytes=1 << 17)
    many = {"growth": {"max_nodes": 1000, "least_worth": 0.001}}
    message = request(whole(), EMPTY, {}, GREEDY)
    async with serve(model) as channel:
        response = await ask(channel, asking(message, **many))
        assert response.HasField("next_draft") is (kind == "recurrent")
        assert (await ask(channel, asking(message))).HasField("next_draft")
    assert not caplog.records


async def test_heads_that_fail_cost_the_draft_and_not_the_verdict(
    load_with_heads, serve, monkeypatch
):
    model = load_with_heads()
    message = request(whole(), EMPTY, {}, GREEDY)

    def fail(readings):
        raise RuntimeError("broken heads")

    async with serve(model) as channel:
        healthy = await ask(channel, asking(message))
        with monkeypatch.context() as patch:
            patch.setattr(model._heads, "step", fail)
            hurt, plain = await asyncio.gather(ask(channel, asking(message)), ask(channel, message))
        again = await ask(channel, asking(message))
    assert hurt.next_token_id == plain.next_token_id == healthy.next_token_id
    assert not hurt.HasField("next_draft")
    assert drafted(again) == drafted(healthy)


async def test_a_replica_without_heads_answers_without_a_draft(load, serve):
    async with serve(load()) as channel:
        response = await ask(channel, asking(request(whole(), EMPTY, {}, GREEDY)))
    assert not response.HasField("next_draft")


async def test_a_replica_says_whether_it_has_heads(load, load_with_heads, serve):
    for model, depth in [(load(), 0), (load_with_heads(), MAX_DEPTH)]:
        async with serve(model) as channel:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            info = (await stub.GetModel(model_service_pb2.GetModelRequest())).model
        assert info.heads_depth == depth
        assert (model_pb2.MODEL_FEATURE_HEADS in info.features) is bool(depth)


def test_heads_of_another_target_are_refused(load_with_heads):
    with pytest.raises(ModelNotLoadable, match="are for another target"):
        load_with_heads("llama", heads_of="qwen2")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"depth": 0}, "next_draft.depth"),
        ({"depth": 257}, "next_draft.depth"),
        ({"num_choices": 17}, "next_draft.num_choices"),
        ({"stop": None}, "next_draft.growth"),
        ({"growth": {"max_nodes": 0}}, "next_draft.growth.max_nodes"),
        ({"growth": {"max_nodes": 1025}}, "next_draft.growth.max_nodes"),
        ({"stop": {"below": 2}}, "next_draft.stop.below"),
    ],
    ids=str,
)
async def test_a_wrong_field_is_refused_by_its_name(load, serve, changes, field):
    message = asking(verifier_pb2.VerifyRequest(**VALID), **changes)
    async with serve(load()) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(channel, message)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert violations(refused.value) == [field]


def test_while_some_draft_nobody_waits_for_the_target(load_with_heads):
    """A forward for both kinds is a step of the heads; the target's request waits for another."""
    model = load_with_heads()
    first = model.open(PREFIX, Cancellation(), 4)
    (logits,) = model.forward([ForwardRequest(first, EMPTY)])
    first.close(())
    drafts = [model.open_draft(first, 0, token, room=4) for token in (7, 8)]
    other = model.open(PREFIX[::-1], Cancellation(), 4)
    requests = [
        ForwardRequest(drafts[0], EMPTY),
        ForwardRequest(other, EMPTY),
        ForwardRequest(drafts[1], EMPTY),
    ]
    one, waits, two = model.forward(requests)
    assert waits is None
    for draft_, together, token in zip(drafts, (one, two), (7, 8), strict=True):
        separate = model.open_draft(first, 0, token, room=4).score(EMPTY)
        apart = 2 * bound(tiny_configs()["llama"], separate)
        np.testing.assert_allclose(together, separate, rtol=0, atol=apart)
        assert draft_.num_computed_tokens == 1
    (later,) = model.forward([requests[1]])
    assert later is not None
    assert later.shape == logits.shape
