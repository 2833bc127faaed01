"""DrafterService over gRPC: what is streamed, when, and when it stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import grpc
import numpy as np
import pytest
from tests.inference.drafting import bushy, grow

from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.predict.platt import Platt
from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.growth import TreeGrowth
from specmesh.decoding.trees.shape import TreeShape
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.drafter import servicer
from specmesh.inference.model import Cancellation, ModelDescription
from specmesh.inference.models.context.lookup import ContextModel, PromptLookup
from specmesh.inference.service.growth import DraftShape
from specmesh.mesh.v1alpha1 import drafter_pb2, drafter_pb2_grpc, tokens_pb2
from specmesh.serving.codec.draft_rules import write_growth, write_stop, write_tree_shape
from specmesh.serving.codec.wire import read_choices, read_distributions, write_sampling, write_tree
from specmesh.serving.errors import error_info

NEVER = Cancellation()

PREFIX = [int(token) for token in np.random.default_rng(9).integers(0, 60, 40)]
COUPLED = Sampling(seed=5)
REJECTION = Sampling(seed=5, mode=AcceptanceMode.REJECTION)


def request(
    shape: DraftShape,
    sampling: Sampling = COUPLED,
    tree: TokenTree = EMPTY,
    prefix: list[int] = PREFIX,
    levels_per_message: int = 0,
) -> drafter_pb2.DraftRequest:
    return drafter_pb2.DraftRequest(
        prefix=tokens_pb2.Prefix(token_ids=prefix),
        tree=write_tree(tree),
        from_nodes=shape.from_nodes,
        depth=shape.depth,
        sampling=write_sampling(sampling),
        levels_per_message=levels_per_message,
        num_choices=shape.num_choices,
        stop=write_stop(shape.stop),
        growth=write_growth(shape.growth),
        shape=write_tree_shape(shape.fixed),
        vocab_size=shape.vocab_size or 0,
    )


def call(channel, message) -> grpc.aio.UnaryStreamCall:
    return drafter_pb2_grpc.DrafterServiceStub(channel).Draft(message, timeout=20)


async def draft(channel, message) -> list[drafter_pb2.DraftResponse]:
    return [response async for response in call(channel, message)]


def joined(tree: TokenTree, responses: list[drafter_pb2.DraftResponse]) -> TokenTree:
    for response in responses:
        tree = tree.extend(list(response.token_ids), list(response.parents))
    return tree


def grown(
    model, message_shape: DraftShape, sampling: Sampling, tree: TokenTree = EMPTY
) -> TokenTree:
    levels = list(grow(model.open(PREFIX, NEVER), tree, PREFIX, message_shape, sampling))
    return levels[-1].tree


@pytest.mark.parametrize(
    ("levels_per_message", "sizes"),
    [(0, [2, 4, 4, 4, 4]), (1, [2, 4, 4, 4, 4]), (2, [6, 8, 4]), (5, [18]), (9, [18])],
)
async def test_levels_leave_as_many_at_a_time_as_asked(load, serve, levels_per_message, sizes):
    shape = bushy((0,), 5, 2, 2)
    async with serve(load()) as channel:
        responses = await draft(channel, request(shape, levels_per_message=levels_per_message))
    assert [len(response.token_ids) for response in responses] == sizes
    assert joined(EMPTY, responses) == grown(load(), shape, COUPLED)


async def test_a_tree_that_grows_by_worth_is_sent_as_it_is_grown(load, serve):
    stop, growth = DraftStop(0.02, Platt()), TreeGrowth(9, 0.01)
    shape = DraftShape((0,), 6, num_choices=3, stop=stop, growth=growth)
    for sampling in (COUPLED, REJECTION):
        async with serve(load()) as channel:
            message = request(shape, sampling, levels_per_message=6)
            (response,) = await draft(channel, message)
        tree = joined(EMPTY, [response])
        assert tree == grown(load(), shape, sampling)
        assert not tree.is_chain
        parents = set(tree.parents)
        assert {each.node for each in response.choices} == parents
        told = {each.node for each in response.draft_distributions}
        assert told == (parents if sampling is REJECTION else set())


async def test_a_tree_of_a_fixed_shape_is_sent_as_it_is_grown(load, serve):
    shape = DraftShape((0,), 6, fixed=TreeShape((2, 1, 0, 3)))
    for sampling in (COUPLED, REJECTION):
        async with serve(load()) as channel:
            message = request(shape, sampling, levels_per_message=6)
            (response,) = await draft(channel, message)
        tree = joined(EMPTY, [response])
        assert tree == grown(load(), shape, sampling)
        assert tree.parents == (0, 0, 1, 3, 3, 3)
        assert not response.choices
        told = {each.node for each in response.draft_distributions}
        assert told == ({0, 1, 3} if sampling is REJECTION else set())


async def test_draft_keeps_to_the_targets_vocabulary(load, serve):
    """That of the model may be padded further."""
    async with serve(load()) as channel:
        whole, kept = [
            joined(EMPTY, await draft(channel, request(DraftShape((0,), 40, vocab_size=size))))
            for size in (None, 12)
        ]
    assert max(whole.token_ids) >= 12 > max(kept.token_ids)


async def test_draft_goes_on_below_several_nodes_of_a_tree(load, serve):
    tree = TokenTree((1, 2, 3), (0, 0, 1))
    shape = bushy((3, 2, 0), 3, 2)
    async with serve(load()) as channel:
        responses = await draft(channel, request(shape, tree=tree))
    assert list(responses[0].parents) == [3, 3, 2, 2, 0, 0]
    assert joined(tree, responses) == grown(load(), shape, COUPLED, tree)


async def test_chain_from_the_prefix_is_the_default(load, serve):
    message = request(DraftShape((), 3))
    async with serve(load()) as channel:
        assert joined(EMPTY, await draft(channel, message)).parents == (0, 1, 2)


async def test_distributions_travel_with_the_nodes_drawn_from_them(load, serve):
    shape = bushy((0,), 3, 2, 2)
    sequence = load().open(PREFIX, NEVER)
    levels = list(grow(sequence, EMPTY, PREFIX, shape, REJECTION))
    async with serve(load()) as channel:
        message = request(shape, REJECTION, levels_per_message=2)
        first, second = await draft(channel, message)
    assert [d.node for d in first.draft_distributions] == [0, 1, 2]
    assert [d.node for d in second.draft_distributions] == [3, 4, 5, 6]
    received = read_distributions([*first.draft_distributions, *second.draft_distributions])
    for level in levels:
        for node, distribution in level.distributions.items():
            assert np.array_equal(received[node].token_ids, distribution.token_ids)
            np.testing.assert_allclose(
                received[node].probabilities, distribution.probabilities, atol=1e-6
            )


async def test_coupled_drafts_carry_no_distributions(load, serve):
    async with serve(load()) as channel:
        (response,) = await draft(channel, request(bushy((0,), 1, 3)))
    assert not response.draft_distributions


@pytest.mark.parametrize("sampling", [COUPLED, REJECTION], ids=["coupled", "rejection"])
async def test_choices_travel_with_the_nodes_drawn_beside_them(load, serve, sampling):
    shape = bushy((0,), 3, 2, 2, num_choices=5)
    levels = list(grow(load().open(PREFIX, NEVER), EMPTY, PREFIX, shape, sampling))
    message = request(shape, sampling, levels_per_message=2)
    async with serve(load()) as channel:
        first, second = await draft(channel, message)
    assert [list(read_choices(part.choices, part.entropies, 60)) for part in (first, second)] == [
        [0, 1, 2],
        [3, 4, 5, 6],
    ]
    received = read_choices(
        [*first.choices, *second.choices], [*first.entropies, *second.entropies], 60
    )
    for level in levels:
        for node, choices in level.choices.items():
            assert received[node].token_ids == choices.token_ids
            np.testing.assert_allclose(
                received[node].probabilities, choices.probabilities, rtol=1e-5
            )
            assert received[node].entropy == pytest.approx(choices.entropy, rel=1e-5)


async def test_choices_are_told_only_when_asked_for(load, serve):
    async with serve(load()) as channel:
        (response,) = await draft(channel, request(bushy((0,), 1, 3)))
    assert not response.choices


@pytest.mark.parametrize("levels_per_message", [1, 2, 9])
async def test_draft_that_is_stopped_sends_all_it_has(load, serve, levels_per_message):
    shape = DraftShape((0,), 9, stop=DraftStop(0.1, Platt()))
    expected = grown(load(), shape, COUPLED)
    assert 0 < len(expected) < 9
    async with serve(load()) as channel:
        responses = await draft(channel, request(shape, levels_per_message=levels_per_message))
    assert joined(EMPTY, responses) == expected


async def test_next_draft_finds_the_likeliest_path_cached(load, serve):
    shape = bushy((0,), 4, 2)
    async with serve(load()) as channel:
        responses = await draft(channel, request(shape, levels_per_message=2))
        costs = [response.cost for response in responses]
        assert [cost.num_cached_tokens for cost in costs] == [0, 0]
        # Of the 39 before the last, whole blocks.
        assert [cost.num_computed_tokens for cost in costs] == [32 + 1 + 2, 4]
        tree = joined(EMPTY, responses)
        likeliest = tree.tokens_on((1, 3, 5, 7))
        (response,) = await draft(
            channel, request(DraftShape((0,), 1), prefix=[*PREFIX, *likeliest])
        )
    assert response.cost.num_cached_tokens == 32
    assert response.cost.num_computed_tokens == 1


async def test_draft_by_base_needs_the_tail_alone(load, serve):
    message = request(DraftShape((0,), 3))
    async with serve(load()) as channel:
        first = await draft(channel, message)
        length, digest = PrefixChain(PREFIX).base()
        message.prefix.CopyFrom(
            tokens_pb2.Prefix(base_length=length, base_digest=digest, token_ids=PREFIX[length:])
        )
        assert joined(EMPTY, await draft(channel, message)) == joined(EMPTY, first)
        message.prefix.base_digest = bytes(16)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await draft(channel, message)
    assert error_info(refused.value).reason == "PREFIX_UNKNOWN"


@pytest.mark.parametrize(("room", "num_levels"), [(3, 3), (1, 1), (0, 0)])
async def test_draft_ends_with_the_context(load, serve, room, num_levels):
    prefix = (PREFIX * 4)[: 128 - room]
    async with serve(load()) as channel:
        assert len(await draft(channel, request(DraftShape((0,), 9), prefix=prefix))) == num_levels


async def test_draft_without_a_guess_is_empty(serve):
    description = ModelDescription("lookup", 60, 0, (), "", 0, "prompt-lookup", "")
    async with serve(ContextModel(description, PromptLookup(60))) as channel:
        assert await draft(channel, request(DraftShape((0,), 5), prefix=[1, 2, 3])) == []
        responses = await draft(channel, request(DraftShape((0,), 5), prefix=[1, 2, 3, 1]))
    assert joined(EMPTY, responses).token_ids == (2, 3, 1, 2, 3)


class Watched:
    """A model that tells of its forwards; held, the second takes until it is cancelled."""

    def __init__(self, model) -> None:
        self.description = model.description
        self.find_base = model.find_base
        self.max_batch = model.max_batch
        self.pool = None
        self.num_scored = 0
        self.scoring: asyncio.Queue[int] = asyncio.Queue()
        self.closed = threading.Event()
        self._model = model
        self._loop: asyncio.AbstractEventLoop | None = None

    def hold(self) -> None:
        self._loop = asyncio.get_running_loop()

    def open(self, prefix, cancellation, room):
        sequence = self._model.open(prefix, cancellation, room)
        really_close = sequence.close

        def close(keep) -> None:
            really_close(keep)
            if self._loop is not None:
                self.closed.set()

        sequence.close = close
        return sequence

    def forward(self, asks):
        results = self._model.forward(asks)
        if self._loop is not None:
            self.num_scored += 1
            self._loop.call_soon_threadsafe(self.scoring.put_nowait, self.num_scored)
            if self.num_scored > 1:
                assert asks[0].sequence.cancellation.wait(10)
        return results


@pytest.fixture
async def accounted(monkeypatch) -> AsyncIterator[asyncio.Event]:
    """Set once the server has done with a Draft."""
    event = asyncio.Event()
    monkeypatch.setattr(servicer, "record_cost", lambda cost: event.set())
    return event


@pytest.mark.parametrize("levels_per_message", [1, 100])
async def test_cancelled_draft_stops_within_one_level(load, serve, accounted, levels_per_message):
    model = Watched(load())
    async with asyncio.timeout(20), serve(model) as channel:
        model.hold()
        running = call(
            channel, request(DraftShape((0,), 60), levels_per_message=levels_per_message)
        )
        if levels_per_message == 1:
            await running.read()
        while await model.scoring.get() < 2:
            pass
        running.cancel()
        await accounted.wait()
        assert model.closed.is_set()
        assert model.num_scored == 2
