"""A drafter that sends more than it was asked for is to blame for that, not the verifiers."""

from __future__ import annotations

import asyncio

import pytest
from tests.orchestrator.answers import alone, collect, request
from tests.orchestrator.peers import Drafter, Verifier

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import AcceptanceMode, Sampling
from specmesh.decoding.trees.growth import TreeGrowth
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.mesh.v1alpha1 import drafter_pb2, verifier_pb2
from specmesh.orchestrator.replicas.calls.draft.drafts import DraftLimits, read_part
from specmesh.orchestrator.replicas.calls.verify.next_drafts import read_next_draft
from specmesh.orchestrator.strategies.commands import NextDraft, Verify
from specmesh.serving.codec.wire import read_tree

MANY = 1000
CHAIN = TokenTree.chain((7, 8, 9))


def asked(**fields):
    return drafter_pb2.DraftRequest(**{"depth": 4, "levels_per_message": 2} | fields)


def read(wanted, tree, parents):
    """Read a message with nodes of different tokens that hang from ``parents``."""
    message = drafter_pb2.DraftResponse(token_ids=range(len(parents)), parents=parents)
    limits = DraftLimits.of(wanted, tree)
    return read_part(message, tree, limits, 100, AcceptanceMode.COUPLED).tree


GROWTH = {"max_nodes": 6, "least_worth": 0.1}
SHAPE = {"num_children": [2, 1, 0, 1]}


@pytest.mark.parametrize(
    ("wanted", "tree", "parents"),
    [
        (asked(), EMPTY, [0, 1, 2, 3]),  # all levels in one message
        (asked(), EMPTY, []),
        (asked(from_nodes=[1, 3], depth=2), CHAIN, [1, 3, 4, 5]),
        (asked(from_nodes=[1], depth=1), CHAIN, [1]),  # shallower than what was given
        (asked(growth=GROWTH), EMPTY, [0, 0, 0, 1, 2, 4]),
        (asked(shape=SHAPE), EMPTY, [0, 0, 1, 3]),
        (asked(shape=SHAPE, from_nodes=[0, 3]), CHAIN, [0, 0, 3, 3, 4, 6, 8, 9]),
    ],
)
def test_all_that_was_asked_for_is_taken(wanted, tree, parents):
    assert len(read(wanted, tree, parents)) == len(tree) + len(parents)


@pytest.mark.parametrize(
    ("wanted", "tree", "parents"),
    [
        (asked(), EMPTY, [0, 1, 2, 3, 4]),
        (asked(), EMPTY, [0, 0, 0, 0, 0]),
        (asked(from_nodes=[1, 3], depth=2), CHAIN, [3, 4, 5]),
        (asked(from_nodes=[1], depth=1), CHAIN, [3]),
        (asked(growth=GROWTH), EMPTY, [0, 0, 0, 0, 0, 0, 0]),
        (asked(growth=GROWTH), EMPTY, [0, 1, 2, 3, 4]),
        (asked(shape=SHAPE), EMPTY, [0, 0, 0, 0, 0]),
    ],
)
def test_more_nodes_or_levels_are_refused(wanted, tree, parents):
    with pytest.raises(InvalidField) as raised:
        read(wanted, tree, parents)
    assert str(raised.value) == "token_ids: more than was asked for"


def test_several_messages_count_together():
    wanted = asked(depth=2)
    tree = read(wanted, EMPTY, [0, 1])
    limits = DraftLimits.of(wanted, EMPTY)
    third = drafter_pb2.DraftResponse(token_ids=[5], parents=[2])
    with pytest.raises(InvalidField):
        read_part(third, tree, limits, 100, AcceptanceMode.COUPLED)


class Bounded(Verifier):
    """Refuses what exceeds its context, as ours do."""

    def _verdict(self, prefix, request):
        depth = max(read_tree(request.tree, self.info.vocab_size).depths)
        if len(prefix) + depth > self.info.context_tokens:
            raise InvalidField("prefix", "exceeds the context")
        return super()._verdict(prefix, request)


def endless(message):
    """Go on where a draft should end."""
    node = max(message.parents, default=-1) + 1
    message.token_ids.extend([7] * MANY)
    message.parents.extend(range(node, node + MANY))


@pytest.mark.parametrize("strategy", ["speculative", "dsi", "tree"])
async def test_a_drafter_that_goes_on_and_on_costs_no_answer(connect, serve, strategy):
    bad, good = Drafter(), Drafter()
    bad.corrupt = endless
    stub = await serve(await connect([Bounded(), Bounded()], [bad, good]))
    message = request(speculation={"strategy": strategy})
    for _ in range(3):
        answer = await asyncio.wait_for(collect(stub.Generate(message)), 20)
        assert answer.tokens == alone(message.sampling)
    assert 1 <= len(bad.requests) < len(good.requests)


@pytest.mark.parametrize("growth", [None, TreeGrowth(6, 0.1)])
def test_heads_draft_no_more_levels_than_they_were_asked_for(growth):
    command = Verify(1, (), EMPTY, next_draft=NextDraft(depth=2, growth=growth))
    response = verifier_pb2.VerifyResponse()
    response.next_draft.token_ids[:], response.next_draft.parents[:] = [7, 8], [0, 1]
    assert read_next_draft(response, command, Sampling(), 100) is not None
    response.next_draft.token_ids.append(9)
    response.next_draft.parents.append(2)
    with pytest.raises(InvalidField):
        read_next_draft(response, command, Sampling(), 100)
