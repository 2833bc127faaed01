"""Checks at load that vLLM computes what transformers computes of the same weights.

vLLM has code of its own for each architecture. What it would say differently, replicas of one
target with the same digest would say differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from specmesh.decoding.tree import TokenTree
from specmesh.inference.model import Cancellation, LanguageModel, Logits, ModelNotLoadable
from specmesh.inference.models.probe import TOLERANCE, difference, plain_logits, texts

_PREFIX_TOKENS = 8


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
        """Raise ``ModelNotLoadable`` unless ``served`` says the same to prefixes with chains."""
        for text, expected in zip(self.texts, self.logits, strict=True):
            prefix, chain = text[:_PREFIX_TOKENS], TokenTree.chain(text[_PREFIX_TOKENS:])
            sequence = served.open(prefix, Cancellation(), len(chain))
            try:
                logits = sequence.score(chain)
            finally:
                sequence.close(())
            differ = difference(logits, expected[_PREFIX_TOKENS - 1 :])
            if not differ <= TOLERANCE[self.dtype]:
                raise ModelNotLoadable(
                    f"vLLM computes something else of {self.name!r} than transformers does "
                    f"(logits differ by {differ:.2%})"
                )
