"""A check at load that vLLM and transformers compute the same logits from the same weights.

vLLM has its own code for each architecture. If its logits differed, replicas of one target with the
same digest would give different answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from specmesh.decoding.trees.tree import TokenTree
from specmesh.inference.model import Cancellation, LanguageModel, Logits, ModelNotLoadable
from specmesh.inference.models.probe import TOLERANCE, difference, plain_logits, texts

_PREFIX_TOKENS = 8
_ACCEPTED_TOKENS, _REJECTED_TOKENS = 2, 2
"""The numbers of draft tokens of the first call that the second call accepts and rejects.
"""


@dataclass(frozen=True, slots=True)
class PlainLogits:
    """The logits that transformers computes in ``dtype`` for short texts: ``[tokens, vocab]`` for
    each."""

    name: str
    dtype: torch.dtype
    texts: Sequence[list[int]]
    logits: Sequence[Logits]

    @classmethod
    def of(cls, name: str, model: Any) -> PlainLogits:
        """Compute the logits of ``model``. Raises ``ModelNotLoadable`` if it cannot compute
        them."""
        return cls(name, model.dtype, texts(model.config), list(plain_logits(name, model)))

    def check(self, served: LanguageModel) -> None:
        """Raise ``ModelNotLoadable`` unless ``served`` computes the same logits in two calls for
        each text. The second call continues after the draft of the first, a part of which was
        rejected."""
        for text, expected in zip(self.texts, self.logits, strict=True):
            draft = text[_PREFIX_TOKENS : _PREFIX_TOKENS + _ACCEPTED_TOKENS]
            room = max(0, len(text) - _PREFIX_TOKENS - len(draft))  # the context may be shorter
            rejected = text[: min(room, _REJECTED_TOKENS)]
            rows = _rows(served, text[:_PREFIX_TOKENS], [*draft, *rejected])[: len(draft) + 1]
            committed = _PREFIX_TOKENS + len(rows)
            if committed <= len(text):
                others = _rows(served, text[:committed], text[committed:])
                rows = np.concatenate([rows, others])
            differ = difference(rows, expected[_PREFIX_TOKENS - 1 :])
            if not differ <= TOLERANCE[self.dtype]:
                raise ModelNotLoadable(
                    f"vLLM and transformers compute different logits for {self.name!r} "
                    f"(logits differ by {differ:.2%})"
                )


def _rows(served: LanguageModel, prefix: Sequence[int], draft: Sequence[int]) -> Logits:
    """Return the logits after ``prefix`` and after each token of ``draft``."""
    chain = TokenTree.chain(draft)
    sequence = served.open(prefix, Cancellation(), len(chain))
    try:
        return sequence.score(chain)
    finally:
        sequence.close(())
