"""Requests with one wrong field, and the field that the refusal has to name."""

from __future__ import annotations

import math
from typing import Any

from tests.conformance.engines import Engine

from specmesh.mesh.v1alpha1 import tokens_pb2
from specmesh.v1 import sampling_pb2
from specmesh.v1.model_pb2 import (
    MODEL_FEATURE_FURTHER_TOKENS,
    MODEL_FEATURE_LOGIT_PROCESSING,
    MODEL_FEATURE_LOGPROBS,
    MODEL_FEATURE_NODE_LOGPROBS,
    MODEL_FEATURE_REJECTION_MODE,
    MODEL_FEATURE_TREE_GROWTH,
    MODEL_FEATURE_TREE_SHAPE,
)

Fields = dict[str, Any]
Wrong = dict[str, tuple[Fields, str]]
"""By name, fields of a request in place of the valid ones, and which of them is wrong."""


def prefix(**fields: Any) -> Fields:
    return {"prefix": tokens_pb2.Prefix(**fields)}


def tree(token_ids: list[int], parents: list[int]) -> Fields:
    return {"tree": tokens_pb2.TokenTree(token_ids=token_ids, parents=parents)}


def sampling(**fields: Any) -> Fields:
    return {"sampling": sampling_pb2.SamplingParameters(**({"seed": 1} | fields))}


def node(number: int, token_ids: list[int], probabilities: list[float]):
    return tokens_pb2.DraftDistribution(
        node=number, token_ids=token_ids, probabilities=probabilities
    )


def rejection(*distributions: tokens_pb2.DraftDistribution) -> Fields:
    """One draft token, 7, drawn from ``distributions``."""
    return {
        "tree": tokens_pb2.TokenTree(token_ids=[7], parents=[0], draft_distributions=distributions),
        "sampling": sampling_pb2.SamplingParameters(
            seed=1, acceptance_mode=sampling_pb2.ACCEPTANCE_MODE_REJECTION
        ),
    }


VALID = prefix(token_ids=[1, 2, 3]) | sampling()
VALID_DRAFT = VALID | {"depth": 2}

COMMON: Wrong = {
    "base_length_within_a_block": (prefix(base_length=8, token_ids=[1]), "prefix.base_length"),
    "salt_of_another_length": (prefix(token_ids=[1], salt=b"short"), "prefix.salt"),
    "empty_prefix": (prefix(), "prefix"),
    "draft_token_outside_vocabulary": (tree([1, 2**32 - 1], [0, 1]), "tree.token_ids[1]"),
    "own_parent": (tree([1], [1]), "tree.parents"),
    "cycle": (tree([1, 2], [2, 1]), "tree.parents"),
    "parent_that_is_not_there": (tree([1, 2], [0, 9]), "tree.parents"),
    "fewer_parents": (tree([1, 2], [0]), "tree.parents"),
    "fewer_tokens": (tree([1], [0, 1]), "tree.parents"),
    "equal_siblings": (tree([5, 6, 5], [0, 0, 0]), "tree.token_ids"),
    "too_many_nodes": (tree([1] * 1025, [*range(1025)]), "tree.token_ids"),
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
GROWTH = {"max_nodes": 4}
DEPTHS: Wrong = {
    "depth_0": ({"depth": 0}, "depth"),
    "depth_257": ({"depth": 257}, "depth"),
    "draft_of_too_many_nodes": (
        tree([1, 2, 3, 4], [0, 1, 2, 3]) | {"depth": 256, "from_nodes": [0, 1, 2, 3, 4]},
        "depth",
    ),
    "17_choices": ({"num_choices": 17}, "num_choices"),
    "node_that_is_not_there": (tree([1], [0]) | {"from_nodes": [0, 2]}, "from_nodes"),
    "node_named_twice": (tree([1], [0]) | {"from_nodes": [1, 1]}, "from_nodes"),
}
GROWTHS: Wrong = {
    "growth_without_stop": ({"growth": GROWTH}, "growth"),
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
}
SHAPES: Wrong = {
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
}


def wrong_verifications(engine: Engine) -> Wrong:
    """What a verifier refuses, of what it claims to do."""
    wrong = {**COMMON, **_beyond(engine)}
    if engine.can(MODEL_FEATURE_REJECTION_MODE):
        wrong |= _distributions(engine.info.vocab_size)
    if engine.can(MODEL_FEATURE_LOGIT_PROCESSING):
        wrong |= _choices(engine.info.vocab_size)
    if engine.can(MODEL_FEATURE_LOGPROBS):
        wrong["too_many_logprobs"] = ({"num_top_logprobs": 21}, "num_top_logprobs")
    if engine.can(MODEL_FEATURE_NODE_LOGPROBS):
        wrong["too_many_of_nodes"] = ({"num_node_logprobs": 21}, "num_node_logprobs")
    if engine.can(MODEL_FEATURE_FURTHER_TOKENS):
        further = "num_further_tokens"
        wrong["too_many_further"] = ({further: 256}, further)
        wrong["further_below_a_tree"] = ({further: 1, **tree([7], [0])}, further)
    return wrong


def wrong_drafts(engine: Engine) -> Wrong:
    """What a drafter refuses, of what it claims to do."""
    wrong = {**COMMON, **_beyond(engine), **DEPTHS}
    if engine.can(MODEL_FEATURE_TREE_GROWTH):
        wrong |= GROWTHS
    if engine.can(MODEL_FEATURE_TREE_SHAPE):
        wrong |= SHAPES
    return wrong


def _beyond(engine: Engine) -> Wrong:
    """What goes beyond its vocabulary and its context."""
    vocab_size, limit = engine.info.vocab_size, engine.info.context_tokens
    outside: Wrong = {
        "prefix_token_outside_vocabulary": (
            prefix(token_ids=[1, vocab_size]),
            "prefix.token_ids[1]",
        )
    }
    if not limit:
        return outside
    return outside | {
        "prefix_beyond_context": (prefix(token_ids=[1] * (limit + 1)), "prefix"),
        "tree_beyond_context": (
            prefix(token_ids=[1] * (limit - 2)) | tree([1, 2, 3], [0, 1, 2]),
            "prefix",
        ),
    }


def _choices(vocab_size: int) -> Wrong:
    """Tokens that are not there, and parameters that leave none to choose from."""
    allowed, banned = "sampling.allowed_token_ids", "sampling.banned_token_ids"
    outside = [2**32 - 1]
    return {
        "allowed_outside_vocabulary": (sampling(allowed_token_ids=outside), f"{allowed}[0]"),
        "banned_outside_vocabulary": (sampling(banned_token_ids=[1, vocab_size]), f"{banned}[1]"),
        "biased_outside_vocabulary": (
            sampling(logit_bias={vocab_size: 1.0}),
            f"sampling.logit_bias[{vocab_size}]",
        ),
        "sequence_outside_vocabulary": (
            sampling(banned_sequences=[{"token_ids": outside}]),
            "sampling.banned_sequences[0].token_ids[0]",
        ),
        "no_token_left": (sampling(allowed_token_ids=[5], banned_token_ids=[5]), allowed),
        "no_token_left_at_first": (
            sampling(allowed_token_ids=[5], min_tokens=2, end_token_ids=[5]),
            "sampling.min_tokens",
        ),
    }


def _distributions(vocab_size: int) -> Wrong:
    wrong = {
        "missing": rejection(),
        "of_another_node": rejection(node(1, [7], [1])),
        "empty": rejection(node(0, [], [])),
        "lengths_differ": rejection(node(0, [7, 8], [1])),
        "probability_0": rejection(node(0, [7, 8], [1, 0])),
        "probability_negative": rejection(node(0, [7, 8], [1, -1])),
        "probability_infinite": rejection(node(0, [7, 8], [1, math.inf])),
        "token_twice": rejection(node(0, [7, 7], [0.5, 0.5])),
        "token_outside_vocabulary": rejection(node(0, [7, vocab_size], [0.5, 0.5])),
        "child_not_drawable": rejection(node(0, [8], [1])),
    }
    return {
        f"distribution_{name}": (fields, "tree.draft_distributions")
        for name, fields in wrong.items()
    }
