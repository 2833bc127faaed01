"""A model that computes nothing and answers immediately, to measure the cost of a call itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.model import (
    DEFAULT_ROOM_TOKENS,
    Cancellation,
    ForwardRequest,
    ForwardSize,
    Logits,
    ModelDescription,
    score_alone,
)
from specmesh.inference.models.digests import digest_of

VOCAB_SIZE = 256

EMPTY_DESCRIPTION = ModelDescription(
    name="empty",
    vocab_size=VOCAB_SIZE,
    context_tokens=1 << 20,
    end_of_text_ids=(),
    tokenizer_json="",
    num_parameters=0,
    backend="empty",
    weights_digest=digest_of(backend="empty", vocab_size=VOCAB_SIZE),
)


class EmptyModel:
    """A ``LanguageModel`` that finds every token equally likely."""

    description = EMPTY_DESCRIPTION
    max_batch = 1
    pool = None

    def open(
        self,
        prefix: Sequence[int],  # noqa: ARG002
        cancellation: Cancellation,
        room: int = DEFAULT_ROOM_TOKENS,  # noqa: ARG002
    ) -> EmptySequence:
        """Open a sequence, which ignores both ``prefix`` and ``cancellation``."""
        return EmptySequence(cancellation)

    def forward(self, requests: Sequence[ForwardRequest]) -> list[Logits | None]:
        """Return the logits of the one request."""
        return score_alone(requests)

    def find_base(self, base_length: int, digest: bytes) -> None:
        """Return None: nothing is cached."""


class EmptySequence:
    """A ``SequenceState`` without any state."""

    num_cached_tokens = 0
    num_computed_tokens = 0
    latest_forward = ForwardSize()

    def __init__(self, cancellation: Cancellation) -> None:
        self.cancellation = cancellation

    def score(self, tree: TokenTree) -> Logits:
        """Return zeros for every node, including those of earlier calls."""
        return np.zeros((len(tree) + 1, VOCAB_SIZE), np.float32)

    def close(self, keep: Sequence[int]) -> None:
        """Do nothing: nothing is cached."""
