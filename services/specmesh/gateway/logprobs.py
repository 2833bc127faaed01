"""Log-probabilities in the two shapes that OpenAI has for them."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from specmesh.client import TokenLogprob, TokenLogprobs

Json = dict[str, object]

LEAST = -9999.0
"""What OpenAI writes for a token that is as good as impossible; JSON has no infinity."""


def token_text(token: TokenLogprob) -> str:
    """A token as text. One that is no text by itself, being part of a character, is written as its
    bytes, ``bytes:\\xe2\\x82``; one without bytes, a special token, as ``token_id:7``."""
    if not token.bytes:
        return f"token_id:{token.token_id}"
    try:
        return token.bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.bytes)


def of_chat(tokens: Sequence[TokenLogprobs]) -> Json:
    """``choices[].logprobs`` of a chat."""
    content = [
        {**_described(each.chosen), "top_logprobs": [_described(top) for top in each.top]}
        for each in tokens
    ]
    return {"content": content, "refusal": None}


def _described(token: TokenLogprob) -> Json:
    return {
        "token": token_text(token),
        "logprob": max(token.logprob, LEAST),
        "bytes": list(token.bytes) or None,
    }


class CompletionLogprobs:
    """``choices[].logprobs`` of one completion, part by part.

    ``text_offset`` counts the characters of the answer before each token.
    """

    def __init__(self) -> None:
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def more(self, tokens: Sequence[TokenLogprobs]) -> Json:
        """Those of the next tokens."""
        return {
            "tokens": [token_text(each.chosen) for each in tokens],
            "token_logprobs": [max(each.chosen.logprob, LEAST) for each in tokens],
            "top_logprobs": [_likeliest(each) for each in tokens],
            "text_offset": [self._advance(each.chosen.bytes) for each in tokens],
        }

    def _advance(self, text: bytes) -> int:
        before = self._offset
        self._offset += len(self._decoder.decode(text))
        return before


def _likeliest(token: TokenLogprobs) -> dict[str, float]:
    """The likeliest tokens and the one chosen, by text."""
    return {token_text(each): max(each.logprob, LEAST) for each in (*token.top, token.chosen)}
