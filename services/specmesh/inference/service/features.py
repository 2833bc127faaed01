"""The protocol revision and features that processes with a model announce."""

from __future__ import annotations

from specmesh.v1.model_pb2 import (
    MODEL_FEATURE_BONUS_DISTRIBUTION,
    MODEL_FEATURE_COLLECTED_TOKENS,
    MODEL_FEATURE_FURTHER_TOKENS,
    MODEL_FEATURE_LOGIT_PROCESSING,
    MODEL_FEATURE_LOGPROBS,
    MODEL_FEATURE_MANY_REQUESTS,
    MODEL_FEATURE_NODE_LOGPROBS,
    MODEL_FEATURE_REJECTION_MODE,
    MODEL_FEATURE_TREE_GROWTH,
    MODEL_FEATURE_TREE_SHAPE,
    MODEL_FEATURE_TREES,
    ModelFeature,
)

PROTOCOL_REVISION = 6
"""Raise it with every change of the protocol between the processes of a mesh
(``specmesh.mesh.v1alpha1``, ``ModelInfo``). A change that an older process would silently answer
differently needs a ``ModelFeature`` as well: programs decide by features, people read the number.
"""

VERIFYING: tuple[ModelFeature.ValueType, ...] = (
    MODEL_FEATURE_TREES,
    MODEL_FEATURE_REJECTION_MODE,
    MODEL_FEATURE_BONUS_DISTRIBUTION,
    MODEL_FEATURE_LOGPROBS,
    MODEL_FEATURE_MANY_REQUESTS,
    MODEL_FEATURE_LOGIT_PROCESSING,
    MODEL_FEATURE_NODE_LOGPROBS,
    MODEL_FEATURE_FURTHER_TOKENS,
    MODEL_FEATURE_COLLECTED_TOKENS,
)
"""Features of a verifier; one whose model does not score trees has all but ``TREES``."""

DRAFTING: tuple[ModelFeature.ValueType, ...] = (
    MODEL_FEATURE_TREE_GROWTH,
    MODEL_FEATURE_TREE_SHAPE,
    MODEL_FEATURE_MANY_REQUESTS,
    MODEL_FEATURE_LOGIT_PROCESSING,
)
"""Features of a drafter, whatever its model."""
