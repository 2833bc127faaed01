"""A tokenizer that recognizes special tokens only where they are marked."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

MARK = "\ufdd1"
"""A code point that Unicode reserves for internal use by programs, so never a character of text."""


def marked(special_token: str) -> str:
    """Return the spelling of a special token that is meant as one."""
    return MARK + special_token


class MarkedTokenizer:
    """Makes the marked version of ``tokenizer`` when first used, since that may take a second."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @property
    def is_made(self) -> bool:
        """True if ``made`` costs nothing any more."""
        return "made" in vars(self)

    @cached_property
    def made(self) -> Tokenizer:
        """A tokenizer that gives the tokens of ``tokenizer``, but recognizes special tokens only if
        they are ``marked``. An unmarked spelling of one is tokenized as any other text."""
        return _made(self._tokenizer)


def _made(tokenizer: Tokenizer) -> Tokenizer:
    described = json.loads(tokenizer.to_str())
    special = {token["content"] for token in described["added_tokens"] if token["special"]}
    for token in described["added_tokens"]:
        if token["content"] in special:
            token.update(content=marked(token["content"]), normalized=False)
    _mark_in_model(described["model"], special)
    described["post_processor"] = None
    return Tokenizer.from_str(json.dumps(described))


def _mark_in_model(model: dict[str, Any], special: set[str]) -> None:
    """Mark the ``special`` tokens that are vocabulary entries, which text could produce too."""

    def renamed(entry: str) -> str:
        return marked(entry) if entry in special else entry

    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):  # Unigram: pairs of entry and score
        model["vocab"] = [[renamed(entry), score] for entry, score in vocabulary]
    else:
        model["vocab"] = {renamed(entry): token_id for entry, token_id in vocabulary.items()}
    if model.get("unk_token") in special:
        model["unk_token"] = marked(model["unk_token"])
    if "merges" in model:
        model["merges"] = [pair for pair in model["merges"] if "".join(pair) not in special]
