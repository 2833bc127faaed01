"""Prompts of token ids, in any model's vocabulary, cut from the shipped held-out prompts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from specmesh.bench.engine.plan import COMMON_TOKENS, OWN_TOKENS, PROMPT_TOKENS
from specmesh.models import heldout_prompts


class Prompts:
    """Stretches of one long text from random positions, so that hardly any two begin alike."""

    def __init__(self, model: str, seed: int) -> None:
        from transformers import AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(model)
        texts = [prompt.text for prompt in heldout_prompts()]
        ids = tokenizer("\n".join(texts), add_special_tokens=False, verbose=False)["input_ids"]
        self._text: npt.NDArray[np.int64] = np.array(ids, dtype=np.int64)
        self._seed = seed

    def mixed(self, count: int) -> list[list[int]]:
        """Return ``count`` prompts of many lengths; a smaller count gives the first ones of a
        larger."""
        return self._mixed(np.random.default_rng([self._seed, 0]), count)

    def warm_up(self, count: int) -> list[list[int]]:
        """Return other prompts of the same kind, whose cached tokens are useless to timed ones."""
        return self._mixed(np.random.default_rng([self._seed, 1]), count)

    def with_common_beginning(self, count: int) -> list[list[int]]:
        """Return ``count`` prompts that begin with the same system prompt."""
        random = np.random.default_rng([self._seed, 2])
        common = self._stretch(random, COMMON_TOKENS)
        return [[*common, *self._stretch(random, OWN_TOKENS)] for _ in range(count)]

    def of_length(self, length: int) -> list[int]:
        """Return one prompt of ``length`` tokens."""
        return self._stretch(np.random.default_rng([self._seed, 3]), length)

    def several(self, length: int, count: int) -> list[list[int]]:
        """Return ``count`` prompts of ``length`` tokens each."""
        random = np.random.default_rng([self._seed, 4])
        return [self._stretch(random, length) for _ in range(count)]

    def _mixed(self, random: np.random.Generator, count: int) -> list[list[int]]:
        shortest, longest = PROMPT_TOKENS
        return [
            self._stretch(random, int(random.integers(shortest, longest, endpoint=True)))
            for _ in range(count)
        ]

    def _stretch(self, random: np.random.Generator, length: int) -> list[int]:
        start = int(random.integers(len(self._text)))
        stretch: list[int] = self._text.take(range(start, start + length), mode="wrap").tolist()
        return stretch
