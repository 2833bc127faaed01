"""Log-probabilities in OpenAI's two formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specmesh.client import TokenLogprob, TokenLogprobs
from specmesh.gateway.json_text import write_json

Json = dict[str, object]
Columns = dict[str, list[Any]]
"""The log-probabilities of a completion: lists by name, with an entry for each token."""

LEAST = -9999.0
"""OpenAI's value for a token of practically no probability, since JSON has no infinity."""


def token_text(token: TokenLogprob) -> str:
    """Return a token as text. One that is only part of a character is written as its bytes,
    ``bytes:\\xe2\\x82``; a special token, which has no bytes, as ``token_id:7``."""
    if not token.bytes:
        return _by_id(token)
    try:
        return token.bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.bytes)


def of_chat(tokens: Sequence[TokenLogprobs]) -> Json:
    """Return ``choices[].logprobs`` of a chat."""
    content = [
        {**_described(each.chosen), "top_logprobs": [_described(top) for top in each.top]}
        for each in tokens
    ]
    return {"content": content, "refusal": None}


def of_response(tokens: Sequence[TokenLogprobs]) -> list[str]:
    """Return the entries of ``logprobs`` of a text of POST /v1/responses, where a token always has
    bytes. Each is JSON, since the end of a stream tells all of them four times."""
    return [
        write_json(
            {**_with_bytes(each.chosen), "top_logprobs": [_with_bytes(top) for top in each.top]}
        )
        for each in tokens
    ]


def _with_bytes(token: TokenLogprob) -> Json:
    return {**_described(token), "bytes": list(token.bytes)}


def _described(token: TokenLogprob) -> Json:
    return {
        "token": token_text(token),
        "logprob": max(token.logprob, LEAST),
        "bytes": list(token.bytes) or None,
    }


def of_completion(tokens: Sequence[TokenLogprobs]) -> Columns:
    """Return ``choices[].logprobs`` of a completion, or of a part of it."""
    return {
        "tokens": [token_text(each.chosen) for each in tokens],
        "token_logprobs": [max(each.chosen.logprob, LEAST) for each in tokens],
        "top_logprobs": [_likeliest(each) for each in tokens],
        "text_offset": [each.text_offset for each in tokens],
    }


def joined(first: Columns | None, second: Columns | None, num_characters: int) -> Columns | None:
    """Return the log-probabilities of a text of ``num_characters`` and of the one that follows it;
    None if both are."""
    if second is None:
        return first
    offsets = [num_characters + offset for offset in second["text_offset"]]
    shifted = {**second, "text_offset": offsets}
    return shifted if first is None else {name: first[name] + shifted[name] for name in first}


def _likeliest(token: TokenLogprobs) -> dict[str, float]:
    """Return the log-probabilities of the likeliest tokens and the chosen one, by text. If several
    have the same text, it stands for the chosen one, else for the likeliest; the others are written
    as ``token_id:7``."""
    named = {token_text(token.chosen): token.chosen}
    for each in token.top:
        if each.token_id != token.chosen.token_id:
            text = token_text(each)
            named[text if text not in named else _by_id(each)] = each
    return {text: max(each.logprob, LEAST) for text, each in named.items()}


def _by_id(token: TokenLogprob) -> str:
    return f"token_id:{token.token_id}"
