"""Fingerprints of tokenizers, differences between two, and removal of unwanted settings."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FINGERPRINTED = ("normalizer", "pre_tokenizer", "model", "added_tokens")
"""The parts of a ``tokenizer.json`` that determine a text's token ids."""


def fingerprint(tokenizer_json: str) -> str:
    """Return the SHA-256, in hex, of the parts that map text to ids; "" for no tokenizer."""
    if not tokenizer_json:
        return ""
    tokenizer = json.loads(tokenizer_json)
    parts = {name: tokenizer.get(name) for name in FINGERPRINTED}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def difference(target_json: str, drafter_json: str) -> str:
    """Describe the difference between two tokenizers of different fingerprints."""
    target, drafter = json.loads(target_json), json.loads(drafter_json)
    ours, theirs = _vocabulary(target), _vocabulary(drafter)
    if len(ours) != len(theirs):
        return f"the target's vocabulary has {len(ours)} tokens, the drafter's {len(theirs)}"
    for token_id in sorted(ours.keys() | theirs.keys()):
        if ours.get(token_id) != theirs.get(token_id):
            return (
                f"token id {token_id} is {ours.get(token_id)!r} for the target "
                f"and {theirs.get(token_id)!r} for the drafter"
            )
    parts = [name for name in FINGERPRINTED if target.get(name) != drafter.get(name)]
    return f"the vocabularies are equal, but the rules differ in {', '.join(parts)}"


def for_whole_texts(tokenizer: Tokenizer) -> Tokenizer:
    """Turn off truncation and padding of ``tokenizer``, which its file may enable as left over from
    training, and return it."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _vocabulary(tokenizer: dict[str, Any]) -> dict[int, str]:
    vocabulary = tokenizer["model"]["vocab"]
    # Unigram models list [token, score] pairs; the others map tokens to ids.
    pairs = (
        ((token, i) for i, (token, _) in enumerate(vocabulary))
        if isinstance(vocabulary, list)
        else vocabulary.items()
    )
    added = ((token["content"], token["id"]) for token in tokenizer.get("added_tokens", ()))
    return {token_id: token for token, token_id in (*pairs, *added)}
