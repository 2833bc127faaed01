"""Every wrong field is refused by name, before anything is computed from it."""

from __future__ import annotations

import math

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status

from specmesh.mesh.v1alpha1 import (
    drafter_pb2,
    drafter_pb2_grpc,
    tokens_pb2,
    verifier_pb2,
    verifier_pb2_grpc,
)
from specmesh.v1 import sampling_pb2


def node(number: int, token_ids: list[int], probabilities: list[float]):
    return tokens_pb2.DraftDistribution(
        node=number, token_ids=token_ids, probabilities=probabilities
    )


def rejection(*distributions: tokens_pb2.DraftDistribution):
    """One draft token, 7, drawn from ``distributions``."""
    return {
        "tree": tokens_pb2.TokenTree(token_ids=[7], parents=[0], draft_distributions=distributions),
        "sampling": sampling_pb2.SamplingParameters(
            seed=1, acceptance_mode=sampling_pb2.ACCEPTANCE_MODE_REJECTION
        ),
    }


def sampling(**fields):
    return {"sampling": sampling_pb2.SamplingParameters(**({"seed": 1} | fields))}


def prefix(**fields):
    return {"prefix": tokens_pb2.Prefix(**fields)}


def tree(token_ids, parents):
    return {"tree": tokens_pb2.TokenTree(token_ids=token_ids, parents=parents)}


COMMON = {
    "base_length_within_a_block": (prefix(base_length=8, token_ids=[1]), "prefix.base_length"),
    "empty_prefix": (prefix(), "prefix"),
    "prefix_token_outside_vocabulary": (prefix(token_ids=[1, 60]), "prefix.token_ids[1]"),
    "prefix_beyond_context": (prefix(token_ids=[1] * 129), "prefix"),
    "tree_beyond_context": (
        prefix(token_ids=[1] * 126) | tree([1, 2, 3], [0, 1, 2]),
        "prefix",
    ),
    "draft_token_outside_vocabulary": (tree([1, 2**32 - 1], [0, 1]), "tree.token_ids[1]"),
    "own_parent": (tree([1], [1]), "tree.parents"),
    "cycle": (tree([1, 2], [2, 1]), "tree.parents"),
    "parent_that_is_not_there": (tree([1, 2], [0, 9]), "tree.parents"),
    "fewer_parents": (tree([1, 2], [0]), "tree.parents"),
    "fewer_tokens": (tree([1], [0, 1]), "tree.parents"),
    "equal_siblings": (tree([5, 6, 5], [0, 0, 0]), "tree.token_ids"),
    "too_many_nodes": (tree([1] * 1025, range(1025)), "tree.token_ids"),
    "no_seed": (
        {"sampling": sampling_pb2.SamplingParameters(temperature=0.5)},
        "sampling.seed",
    ),
    "no_sampling": ({"sampling": sampling_pb2.SamplingParameters()}, "sampling.seed"),
    "temperature_negative": (sampling(temperature=-1), "sampling.temperature"),
    "temperature_too_high": (sampling(temperature=101), "sampling.temperature"),
    "temperature_nan": (sampling(temperature=math.nan), "sampling.temperature"),
    "top_p_0": (sampling(top_p=0), "sampling.top_p"),
    "top_p_above_1": (sampling(top_p=1.5), "sampling.top_p"),
    "unknown_mode": (sampling(acceptance_mode=7), "sampling.acceptance_mode"),
}
DISTRIBUTIONS = {
    "missing": rejection(),
    "of_another_node": rejection(node(1, [7], [1])),
    "empty": rejection(node(0, [], [])),
    "lengths_differ": rejection(node(0, [7, 8], [1])),
    "probability_0": rejection(node(0, [7, 8], [1, 0])),
    "probability_negative": rejection(node(0, [7, 8], [1, -1])),
    "probability_infinite": rejection(node(0, [7, 8], [1, math.inf])),
    "token_twice": rejection(node(0, [7, 7], [0.5, 0.5])),
    "token_outside_vocabulary": rejection(node(0, [7, 60], [0.5, 0.5])),
    "child_not_drawable": rejection(node(0, [8], [1])),
}
VERIFY = COMMON | {
    f"distribution_{name}": (fields, "tree.draft_distributions")
    for name, fields in DISTRIBUTIONS.items()
}
VERIFY["too_many_logprobs"] = ({"num_top_logprobs": 21}, "num_top_logprobs")
GROWTH = {"max_nodes": 4}
DRAFT = COMMON | {
    "depth_0": ({"depth": 0}, "depth"),
    "depth_257": ({"depth": 257}, "depth"),
    "branching_0": ({"branching": [2, 0]}, "branching"),
    "branching_0_beyond_depth": ({"depth": 1, "branching": [2, 0]}, "branching"),
    "draft_of_too_many_nodes": ({"depth": 2, "branching": [40, 40]}, "branching"),
    "branching_beyond_reason": ({"depth": 256, "branching": [2**32 - 1] * 256}, "branching"),
    "growth_without_stop": ({"growth": GROWTH}, "growth"),
    "growth_of_a_shape": ({"growth": GROWTH, "stop": {}, "branching": [2]}, "growth"),
    "growth_to_no_node": ({"growth": {}, "stop": {}}, "growth.max_nodes"),
    "growth_to_too_many": (
        tree([1], [0]) | {"growth": {"max_nodes": 1024}, "stop": {}},
        "growth.max_nodes",
    ),
    "growth_worth_nan": (
        {"growth": GROWTH | {"least_worth": math.nan}, "stop": {}},
        "growth.least_worth",
    ),
    "growth_worth_2": ({"growth": GROWTH | {"least_worth": 2}, "stop": {}}, "growth.least_worth"),
    "shape_and_branching": ({"shape": {"num_children": [2]}, "branching": [2]}, "shape"),
    "shape_and_growth": (
        {"shape": {"num_children": [2]}, "growth": GROWTH, "stop": {}},
        "shape",
    ),
    "shape_without_nodes": ({"shape": {}}, "shape.num_children"),
    "shape_with_children_of_no_node": (
        {"shape": {"num_children": [1, 0, 1]}},
        "shape.num_children",
    ),
    "shape_of_too_many_nodes": (
        tree([1], [0]) | {"shape": {"num_children": [1024]}},
        "shape.num_children",
    ),
    "shape_of_too_many_nodes_below_two": (
        tree([1], [0]) | {"shape": {"num_children": [512]}, "from_nodes": [0, 1]},
        "shape.num_children",
    ),
    "17_choices": ({"num_choices": 17}, "num_choices"),
    "node_that_is_not_there": (tree([1], [0]) | {"from_nodes": [0, 2]}, "from_nodes"),
    "node_named_twice": (tree([1], [0]) | {"from_nodes": [1, 1]}, "from_nodes"),
}


def violations(error: grpc.aio.AioRpcError) -> list[str]:
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    bad = BadRequest()
    assert any(packed.Unpack(bad) for packed in Status.FromString(details).details)
    return [violation.field for violation in bad.field_violations]


VALID = prefix(token_ids=[1, 2, 3]) | sampling()


@pytest.fixture(scope="module")
def model(load):
    return load()


@pytest.mark.parametrize(("wrong", "field"), VERIFY.values(), ids=VERIFY)
async def test_wrong_verify_is_refused_by_field(model, serve, wrong, field):
    async with serve(model) as channel:
        stub = verifier_pb2_grpc.VerifierServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Verify(verifier_pb2.VerifyRequest(**(VALID | wrong)), timeout=20)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert violations(refused.value) == [field]
        await stub.Verify(verifier_pb2.VerifyRequest(**VALID), timeout=20)


@pytest.mark.parametrize(("wrong", "field"), DRAFT.values(), ids=DRAFT)
async def test_wrong_draft_is_refused_by_field(model, serve, wrong, field):
    valid = VALID | {"depth": 2}
    async with serve(model) as channel:
        stub = drafter_pb2_grpc.DrafterServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Draft(drafter_pb2.DraftRequest(**(valid | wrong)), timeout=20).read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert violations(refused.value) == [field]
        await stub.Draft(drafter_pb2.DraftRequest(**valid), timeout=20).read()
