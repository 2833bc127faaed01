"""A model without arithmetic that answers at once: what is left is the cost of the hop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specmesh.decoding.tree import TokenTree
from specmesh.inference.model import (
    DEFAULT_ROOM_TOKENS,
    Cancellation,
    ForwardRequest,
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
    """See ``LanguageModel``. Every token is as likely as any other."""

    description = EMPTY_DESCRIPTION
    max_batch = 1
    pool = None

    def open(
        self,
        prefix: Sequence[int],  # noqa: ARG002
        cancellation: Cancellation,
        room: int = DEFAULT_ROOM_TOKENS,  # noqa: ARG002
    ) -> EmptySequence:
        """See ``LanguageModel.open``."""
        return EmptySequence(cancellation)

    def forward(self, asks: Sequence[ForwardRequest]) -> list[Logits | None]:
        """See ``LanguageModel.forward``."""
        return score_alone(asks)

    def find_base(self, base_length: int, digest: bytes) -> None:
        """Nothing is kept: see ``LanguageModel.find_base``."""


class EmptySequence:
    """See ``SequenceState``."""

    num_cached_tokens = 0
    num_computed_tokens = 0

    def __init__(self, cancellation: Cancellation) -> None:
        self.cancellation = cancellation

    def score(self, tree: TokenTree) -> Logits:
        """See ``SequenceState.score``."""
        return np.zeros((len(tree) + 1, VOCAB_SIZE), np.float32)

    def close(self, keep: Sequence[int]) -> None:
        """Nothing is kept: see ``SequenceState.close``."""
