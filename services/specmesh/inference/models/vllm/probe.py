"""Checks at load that vLLM computes what transformers computes of the same weights.

vLLM has code of its own for each architecture. What it would say differently, replicas of one
target with the same digest would say differently.
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
"""How many tokens of the first call's draft the second one goes on with, and how many it doesn't.
"""


@dataclass(frozen=True, slots=True)
class PlainLogits:
    """What transformers' model, of ``dtype``, says to short texts: ``[tokens, vocab]`` for each."""

    name: str
    dtype: torch.dtype
    texts: Sequence[list[int]]
    logits: Sequence[Logits]

    @classmethod
    def of(cls, name: str, model: Any) -> PlainLogits:
        """Raises ``ModelNotLoadable`` if it cannot compute them."""
        return cls(name, model.dtype, texts(model.config), list(plain_logits(name, model)))

    def check(self, served: LanguageModel) -> None:
        """Raise ``ModelNotLoadable`` unless ``served`` says the same, by two calls for each text:
        the second goes on behind the first one's draft, of which a part was rejected."""
        for text, expected in zip(self.texts, self.logits, strict=True):
            draft = text[_PREFIX_TOKENS : _PREFIX_TOKENS + _ACCEPTED_TOKENS]
            room = max(0, len(text) - _PREFIX_TOKENS - len(draft))  # contexts may be that short
            rejected = text[: min(room, _REJECTED_TOKENS)]
            rows = _rows(served, text[:_PREFIX_TOKENS], [*draft, *rejected])[: len(draft) + 1]
            committed = _PREFIX_TOKENS + len(rows)
            if committed <= len(text):
                others = _rows(served, text[:committed], text[committed:])
                rows = np.concatenate([rows, others])
            differ = difference(rows, expected[_PREFIX_TOKENS - 1 :])
            if not differ <= TOLERANCE[self.dtype]:
                raise ModelNotLoadable(
                    f"vLLM computes something else of {self.name!r} than transformers does "
                    f"(logits differ by {differ:.2%})"
                )


def _rows(served: LanguageModel, prefix: Sequence[int], draft: Sequence[int]) -> Logits:
    """The logits after ``prefix`` and after each token of ``draft``."""
    chain = TokenTree.chain(draft)
    sequence = served.open(prefix, Cancellation(), len(chain))
    try:
        return sequence.score(chain)
    finally:
        sequence.close(())
