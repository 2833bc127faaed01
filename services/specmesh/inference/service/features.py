"""What processes with a model say of the protocol that they speak."""

from __future__ import annotations

from specmesh.v1.model_pb2 import (
    MODEL_FEATURE_BONUS_DISTRIBUTION,
    MODEL_FEATURE_LOGPROBS,
    MODEL_FEATURE_REJECTION_MODE,
    MODEL_FEATURE_TREE_GROWTH,
    MODEL_FEATURE_TREE_SHAPE,
    MODEL_FEATURE_TREES,
    ModelFeature,
)

PROTOCOL_REVISION = 1
"""Raise it with every change of what the processes of a mesh ask of each other
(``specmesh.mesh.v1alpha1``, ``ModelInfo``). A change by which an older process would say something
else, unasked, needs a ``ModelFeature`` as well: programs decide on these, people read the number.
"""

VERIFYING: tuple[ModelFeature.ValueType, ...] = (
    MODEL_FEATURE_TREES,
    MODEL_FEATURE_REJECTION_MODE,
    MODEL_FEATURE_BONUS_DISTRIBUTION,
    MODEL_FEATURE_LOGPROBS,
)
"""What a verifier can do with any model that scores trees; with others, all but those."""

DRAFTING: tuple[ModelFeature.ValueType, ...] = (
    MODEL_FEATURE_TREE_GROWTH,
    MODEL_FEATURE_TREE_SHAPE,
)
"""What a drafter can do with any model."""
