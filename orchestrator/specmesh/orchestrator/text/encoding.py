"""Tokenization of a text by the target's own tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Encoded:
    """The tokens of a text; ``num_own`` of them are not special tokens added around it, behind
    ``num_before`` that are. ``offsets``, if they were asked for, count the characters of the text
    before each token; they never fall."""

    token_ids: tuple[int, ...]
    num_own: int
    num_before: int = 0
    offsets: tuple[int, ...] | None = None

    def is_own(self, index: int) -> bool:
        """Return whether a token was not added around the text."""
        return 0 <= index - self.num_before < self.num_own


def encoded(
    text: str, tokenizer: Tokenizer, add_special_tokens: bool | None, *, with_offsets: bool = False
) -> Encoded:
    """Return the tokens of ``text``.

    With ``add_special_tokens`` the tokenizer adds the special tokens that it puts around every
    text, such as a beginning-of-text token. None does so too, except for leading ones that the text
    itself begins with: the model has never seen a prompt with two of them.
    """
    # Unlike ``encode``, this lets other threads run in the meantime.
    (encoding,) = tokenizer.encode_batch([text], add_special_tokens=add_special_tokens is not False)
    token_ids, are_added = tuple(encoding.ids), encoding.special_tokens_mask
    num_own = are_added.count(0)
    num_before = next((n for n, is_added in enumerate(are_added) if not is_added), 0)
    offsets = None
    if with_offsets:
        own = encoding.offsets[num_before : num_before + num_own]
        num_behind = len(token_ids) - num_before - num_own
        offsets = (*[0] * num_before, *_beginnings(own), *[len(text)] * num_behind)
    before, rest = token_ids[:num_before], token_ids[num_before:]
    if add_special_tokens is None and rest[:num_before] == before:
        offsets = None if offsets is None else offsets[num_before:]
        token_ids, num_before = rest, 0
    return Encoded(token_ids, num_own, num_before, offsets)


def _beginnings(places: Iterable[tuple[int, int]]) -> Iterable[int]:
    """Yield where tokens begin that a tokenizer has found at ``places``, the starts and ends in the
    text. What it has left out belongs to the token behind it, as a space does, and the parts of a
    character begin where that does."""
    offset = told = 0
    for start, end in places:
        offset = max(offset, min(start, told))
        told = max(told, end)
        yield offset
