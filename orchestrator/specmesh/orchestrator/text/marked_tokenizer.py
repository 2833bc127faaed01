"""A tokenizer that takes for special tokens only those that are marked."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

MARK = "\ufdd1"
"""No character, and never one: Unicode keeps it for what programs say to themselves."""


def marked(special_token: str) -> str:
    """How a special token is written that is meant as one."""
    return MARK + special_token


class MarkedTokenizer:
    """That of ``tokenizer``, made when it is first asked for: it may take a second, and few ask."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def made(self) -> Tokenizer:
        """Gives texts the tokens of ``tokenizer``, but for special tokens: they are ``marked``.
        What spells one and isn't marked becomes the tokens of any other text."""
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
    """Mark the ``special`` tokens that are entries of the vocabulary, which texts may reach too."""

    def renamed(entry: str) -> str:
        return marked(entry) if entry in special else entry

    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):  # of Unigram: an entry with its score
        model["vocab"] = [[renamed(entry), score] for entry, score in vocabulary]
    else:
        model["vocab"] = {renamed(entry): token_id for entry, token_id in vocabulary.items()}
    if model.get("unk_token") in special:
        model["unk_token"] = marked(model["unk_token"])
    if "merges" in model:
        model["merges"] = [pair for pair in model["merges"] if "".join(pair) not in special]
