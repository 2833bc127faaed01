"""Drafters without a model, which guess from tokens alone with the target's tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from tokenizers import Tokenizer

from specmesh.inference.backends.registry import Backend
from specmesh.inference.model import (
    LanguageModel,
    ModelDescription,
    ModelNotLoadable,
    check_revision,
)
from specmesh.inference.models.context.lookup import (
    ContextModel,
    NextTokenGuess,
    PromptLookup,
    RandomTokens,
)
from specmesh.inference.models.context.ngram import NGram
from specmesh.inference.models.digests import digest_of, digest_of_array
from specmesh.inference.reasons import reason_of
from specmesh.serving.templates.tokenizers import for_whole_texts

TEXT_SUFFIXES = {".py", ".txt", ".md", ".rst", ".json", ".c", ".h", ".js", ".ts", ".go", ".rs"}


class ContextSettings(BaseSettings):
    """Settings of drafters that guess from tokens alone."""

    help_panel: ClassVar[str] = "Drafters without a model"

    model_config = SettingsConfigDict(frozen=True)

    tokenizer: str = Field(
        "",
        validate_default=True,
        description="folder or Hugging Face id of the target's tokenizer",
    )

    @field_validator("tokenizer")
    @classmethod
    def _check_tokenizer(cls, name: str, info: ValidationInfo) -> str:
        if not name and info.data.get("backend") in _GUESSES:
            raise ValueError("must name the target's tokenizer, a folder or a Hugging Face id")
        return name


class NGramSettings(ContextSettings):
    """Settings of the n-gram drafter."""

    help_panel: ClassVar[str] = "Drafters without a model"

    corpus: str = Field(
        "",
        validate_default=True,
        description="folder of text in which to count n-grams, or 'stdlib': the part of the Python "
        "standard library that the shipped models were trained on",
    )
    ngram_order: int = Field(3, ge=1, le=5, description="length of n-grams")

    @field_validator("corpus")
    @classmethod
    def _check_corpus(cls, name: str, info: ValidationInfo) -> str:
        if not name and info.data.get("backend") == "ngram":
            raise ValueError("must name a folder of text, or 'stdlib'")
        return name


Guess = tuple[str, NextTokenGuess, str]
"""A drafter's name, its guess, and a digest of the tokens that were counted for it."""


def _ngram(settings: Any, tokenizer: Tokenizer) -> Guess:
    tokens = _count_from(settings.corpus, tokenizer)
    guess = NGram(tokens, tokenizer.get_vocab_size(), settings.ngram_order)
    return f"{settings.ngram_order}-gram", guess, digest_of_array(np.asarray(tokens, np.int64))


def _prompt_lookup(settings: Any, tokenizer: Tokenizer) -> Guess:  # noqa: ARG001
    return "prompt-lookup", PromptLookup(tokenizer.get_vocab_size()), ""


def _random(settings: Any, tokenizer: Tokenizer) -> Guess:  # noqa: ARG001
    return "random", RandomTokens(tokenizer.get_vocab_size()), ""


_GUESSES = {"ngram": _ngram, "prompt-lookup": _prompt_lookup, "random": _random}


def load_drafter(backend: str, settings: Any) -> LanguageModel:
    """Load the drafter named ``backend``."""
    tokenizer = _load_tokenizer(settings.tokenizer, settings.revision or None)
    name, guess, counted = _GUESSES[backend](settings, tokenizer)
    vocab_size = tokenizer.get_vocab_size()
    description = ModelDescription(
        name=name,
        vocab_size=vocab_size,
        context_tokens=0,
        end_of_text_ids=(),
        tokenizer_json=tokenizer.to_str(),
        num_parameters=0,
        backend=backend,
        weights_digest=digest_of(name=name, vocab_size=vocab_size, counted=counted),
    )
    return ContextModel(description, guess)


def _load_tokenizer(name: str, revision: str | None) -> Tokenizer:
    path = Path(name) / "tokenizer.json"
    try:
        if name and path.is_file():
            check_revision(name, revision)
            return for_whole_texts(Tokenizer.from_file(str(path)))
        return for_whole_texts(Tokenizer.from_pretrained(name, revision=revision or "main"))
    except ModelNotLoadable:
        raise
    except Exception as error:  # the library raises bare Exceptions
        raise ModelNotLoadable(
            f"--tokenizer {name!r} is neither a folder with a tokenizer.json "
            f"nor a Hugging Face id that can be downloaded: {reason_of(error)}"
        ) from error


def _count_from(corpus: str, tokenizer: Tokenizer) -> list[int]:
    texts: list[str] = []
    if corpus:
        texts = list(_stdlib_texts() if corpus == "stdlib" else _folder_texts(Path(corpus)))
    if not texts:
        raise ModelNotLoadable(f"--corpus {corpus!r} is neither 'stdlib' nor a folder of text")
    return [token for encoding in tokenizer.encode_batch(texts) for token in encoding.ids]


def _stdlib_texts() -> Iterator[str]:
    from specmesh.models.corpus import read_sources, split, standard_library

    return (file.text for file in split(read_sources(standard_library())).training)


def _folder_texts(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in TEXT_SUFFIXES and path.is_file():
            yield path.read_text(encoding="utf-8", errors="replace")


BACKENDS = tuple(
    Backend(
        name=name,
        load_drafter=partial(load_drafter, name),
        drafter_settings=NGramSettings if name == "ngram" else ContextSettings,
        reads="tokenizer",
        uses=frozenset({"revision"}),
    )
    for name in _GUESSES
)
