"""The shipped pair on any device, and held-out prompts as it reads them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from tokenizers import Tokenizer

from specmesh import models
from specmesh.decoding.sampling import Sampling
from specmesh.inference.model import LanguageModel
from specmesh.inference.models.transformers_model import TransformersModel

CACHE_BYTES = 1 << 28
"""A GPU is shared by tests at once."""

PROMPT_TOKENS = 100
NUM_PROMPTS = 16
SAMPLINGS = {"greedy": Sampling(temperature=0), "coupled": Sampling(temperature=0.8, seed=5)}


def load(name: str, device: str, dtype: str = "float32", **options: Any) -> TransformersModel:
    """Load the shipped model ``name``."""
    options = {"cache_bytes": CACHE_BYTES, **options}
    return TransformersModel.load(str(models.path(name)), dtype=dtype, device=device, **options)


@cache
def held(name: str, device: str, dtype: str = "float32") -> TransformersModel:
    """Return the shipped model ``name``, loaded once for all tests."""
    return load(name, device, dtype)


def prompts(model: LanguageModel) -> list[tuple[int, ...]]:
    """The beginnings of texts that the pair was not trained on, of different lengths."""
    tokenizer = Tokenizer.from_str(model.description.tokenizer_json)
    texts: Sequence[models.Prompt] = models.heldout_prompts(NUM_PROMPTS)
    return [
        tuple(tokenizer.encode(each.text).ids[: PROMPT_TOKENS - number])
        for number, each in enumerate(texts)
    ]
