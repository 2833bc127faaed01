"""A draft has the form that was asked for, and says what the reference drafts.

That decides how much is accepted and no token of any text; but in rejection mode the text depends
on the distributions: a drafter has to have drawn from what it sends.
"""

from __future__ import annotations

import grpc
import numpy as np
import pytest
from tests.conformance.calls import by_base, refusal, whole
from tests.conformance.cases import PROCESSED
from tests.conformance.engines import Engine
from tests.inference.drafting import bushy, grow

from specmesh.decoding.predict.lookahead import DraftStop
from specmesh.decoding.predict.platt import Platt
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.growth import TreeGrowth
from specmesh.decoding.trees.shape import TreeShape
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation
from specmesh.inference.service.growth import DraftShape, TreeLevel
from specmesh.mesh.v1alpha1 import drafter_pb2, drafter_pb2_grpc
from specmesh.serving.codec.draft_rules import write_growth, write_stop, write_tree_shape
from specmesh.serving.codec.wire import read_choices, read_distributions, write_sampling, write_tree
from specmesh.v1.model_pb2 import (
    MODEL_FEATURE_LOGIT_PROCESSING,
    MODEL_FEATURE_MANY_REQUESTS,
    MODEL_FEATURE_TREE_GROWTH,
    MODEL_FEATURE_TREE_SHAPE,
)

SAMPLINGS = {
    "greedy": Sampling(temperature=0),
    "coupled": Sampling(temperature=0.8, top_p=0.95, seed=5),
    "rejection": Sampling(temperature=0.9, seed=5, mode=AcceptanceMode.REJECTION),
    "processed": Sampling(temperature=0.8, seed=5, **PROCESSED),
}
DRAFTED = TokenTree((11, 12, 13), (0, 0, 1))
"""Earlier, to draft on below."""
SHAPES = {
    "chain": DraftShape((0,), 8),
    "below_nodes": DraftShape((3, 2, 0), 2),
    "with_choices": DraftShape((0,), 4, num_choices=5),
    "until_it_is_not_worth_it": DraftShape((0,), 16, stop=DraftStop(0.5, Platt())),
    "of_few_tokens": DraftShape((0,), 8, vocab_size=40),
    "grown": DraftShape(
        (0,), 6, num_choices=3, stop=DraftStop(0.02, Platt()), growth=TreeGrowth(9, 0.01)
    ),
    "fixed": DraftShape((0,), 6, fixed=TreeShape((2, 1, 0, 3))),
    "bushy": bushy((0,), 3, 2, 2),
}
NEEDED = {
    "grown": MODEL_FEATURE_TREE_GROWTH,
    **dict.fromkeys(("fixed", "bushy"), MODEL_FEATURE_TREE_SHAPE),
}


def request(prefix, shape: DraftShape, sampling: Sampling, tree: TokenTree = EMPTY, **fields):
    return drafter_pb2.DraftRequest(
        prefix=prefix,
        tree=write_tree(tree),
        from_nodes=shape.from_nodes,
        depth=shape.depth,
        sampling=write_sampling(sampling),
        num_choices=shape.num_choices,
        stop=write_stop(shape.stop),
        growth=write_growth(shape.growth),
        shape=write_tree_shape(shape.fixed),
        vocab_size=shape.vocab_size or 0,
        **fields,
    )


async def draft(channel, message) -> list[drafter_pb2.DraftResponse]:
    stub = drafter_pb2_grpc.DrafterServiceStub(channel)
    return [response async for response in stub.Draft(message, timeout=60)]


def joined(tree: TokenTree, responses: list[drafter_pb2.DraftResponse]) -> TokenTree:
    for response in responses:
        tree = tree.extend(list(response.token_ids), list(response.parents))
    return tree


def expected_of(
    engine: Engine, prefix, shape: DraftShape, sampling: Sampling, tree: TokenTree = EMPTY
) -> list[TreeLevel]:
    sequence = engine.reference.open(prefix, Cancellation(), len(tree) + shape.num_nodes)
    levels = list(grow(sequence, tree, prefix, shape, sampling))
    sequence.close(())
    return levels


@pytest.mark.parametrize("mode", SAMPLINGS)
@pytest.mark.parametrize("name", SHAPES)
async def test_a_draft_is_the_references(drafter, draft_channel, name, mode):
    if name in NEEDED and not drafter.can(NEEDED[name]):
        pytest.skip("is not claimed")
    if mode == "processed" and not drafter.can(MODEL_FEATURE_LOGIT_PROCESSING):
        pytest.skip("is not claimed")
    shape, sampling, prefix = SHAPES[name], SAMPLINGS[mode], drafter.texts[0][:100]
    tree = DRAFTED if name == "below_nodes" else EMPTY
    levels = expected_of(drafter, prefix, shape, sampling, tree)
    told = await draft(draft_channel, request(whole(prefix), shape, sampling, tree))
    assert joined(tree, told) == levels[-1].tree
    distributions = read_distributions(each for part in told for each in part.draft_distributions)
    drawn_from = {node: each for level in levels for node, each in level.distributions.items()}
    assert distributions.keys() == drawn_from.keys()
    for node, each in drawn_from.items():
        probabilities = dict(zip(each.token_ids.tolist(), each.probabilities, strict=True))
        sent = distributions[node]
        for token, probability in zip(sent.token_ids.tolist(), sent.probabilities, strict=True):
            assert probability == pytest.approx(probabilities.get(token, 0), rel=1e-3, abs=1e-5)
    choices = {}
    for part in told:
        choices |= read_choices(part.choices, part.entropies, drafter.info.vocab_size)
    chosen = {node: each for level in levels for node, each in level.choices.items()}
    assert choices.keys() == chosen.keys()
    for node, top in chosen.items():
        assert choices[node].token_ids == top.token_ids
        np.testing.assert_allclose(
            choices[node].probabilities, top.probabilities, rtol=1e-3, atol=1e-30
        )


@pytest.mark.parametrize(("levels_per_message", "sizes"), [(0, [2, 4, 4]), (2, [6, 4])])
async def test_levels_leave_as_many_at_a_time_as_asked(
    drafter, draft_channel, levels_per_message, sizes
):
    """A verification has to leave before the draft is finished."""
    if not drafter.can(NEEDED["bushy"]):
        pytest.skip("is not claimed")
    shape, prefix = SHAPES["bushy"], whole(drafter.texts[0][:100])
    message = request(prefix, shape, SAMPLINGS["greedy"], levels_per_message=levels_per_message)
    told = await draft(draft_channel, message)
    assert [len(response.token_ids) for response in told] == sizes


async def test_a_draft_by_base_needs_the_tail_alone(drafter, draft_channel):
    tokens, shape, sampling = drafter.texts[1][:100], SHAPES["chain"], SAMPLINGS["coupled"]
    first = await draft(draft_channel, request(whole(tokens), shape, sampling))
    message = request(by_base(tokens), shape, sampling)
    assert joined(EMPTY, await draft(draft_channel, message)) == joined(EMPTY, first)
    message.prefix.base_digest = b"?" * 16
    status, reason, _ = await refusal(draft(draft_channel, message))
    assert (status, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "PREFIX_UNKNOWN")


@pytest.mark.parametrize("room", [0, 1, 3])
async def test_a_draft_ends_with_the_context(drafter, draft_channel, room):
    limit = drafter.info.context_tokens
    if not limit or limit > 1 << 14:
        pytest.skip(f"a context of {limit} tokens")
    tokens = [*drafter.texts[0]] * (limit // len(drafter.texts[0]) + 1)
    message = request(whole(tokens[: limit - room]), SHAPES["chain"], SAMPLINGS["greedy"])
    assert len(joined(EMPTY, await draft(draft_channel, message))) == room


async def test_on_an_open_call(drafter, draft_channel):
    """One draft after another, the end of each marked."""
    call = drafter_pb2_grpc.DrafterServiceStub(draft_channel).DraftEach(timeout=60)
    for text in drafter.texts[:3]:
        message = request(whole(text[:50]), SHAPES["chain"], SAMPLINGS["coupled"])
        await call.write(drafter_pb2.DraftEachRequest(request=message))
        told = []
        while not (part := await call.read()).last:
            told.append(part.response)
        assert joined(EMPTY, told) == joined(EMPTY, await draft(draft_channel, message))
    call.cancel()


async def test_many_on_one_call(drafter, draft_channel):
    """All at once; the messages of each are in order, and its end is marked."""
    if not drafter.can(MODEL_FEATURE_MANY_REQUESTS):
        pytest.skip("is not claimed")
    call = drafter_pb2_grpc.DrafterServiceStub(draft_channel).DraftMany(timeout=60)
    asked = [
        request(whole(text[:50]), SHAPES["chain"], SAMPLINGS["coupled"])
        for text in drafter.texts[:3]
    ]
    message = drafter_pb2.DraftManyRequest()
    for number, each in enumerate(asked):
        message.requests.add(number=number, request=drafter_pb2.DraftEachRequest(request=each))
    await call.write(message)
    told: list[list[drafter_pb2.DraftResponse]] = [[] for _ in asked]
    num_ended = 0
    while num_ended < len(asked):
        for part in (await call.read()).responses:
            num_ended += part.response.last
            if not part.response.last:
                told[part.number].append(part.response.response)
    for each, parts in zip(asked, told, strict=True):
        assert joined(EMPTY, parts) == joined(EMPTY, await draft(draft_channel, each))
    call.cancel()


async def test_a_draft_that_is_cancelled_leaves_room_for_the_next(drafter, draft_channel):
    stub = drafter_pb2_grpc.DrafterServiceStub(draft_channel)
    endless = request(whole(drafter.texts[2]), DraftShape((0,), 256), SAMPLINGS["coupled"])
    for _ in range(4):
        running = stub.Draft(endless, timeout=60)
        assert (await running.read()).token_ids
        running.cancel()
    message = request(whole(drafter.texts[2]), SHAPES["chain"], SAMPLINGS["greedy"])
    assert len(joined(EMPTY, await draft(draft_channel, message))) == SHAPES["chain"].depth
