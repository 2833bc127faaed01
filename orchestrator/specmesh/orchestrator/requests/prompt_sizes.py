"""How long prompts may be: in tokens, and in bytes before anybody knows the tokens."""

from __future__ import annotations

from specmesh.decoding.errors import ContextExceeded, InvalidField
from specmesh.orchestrator.replicas.target import Target

LOSSY_FACTOR = 16
"""How many times the bytes of its tokens a text may have if the tokenizer can leave some out. Only
the work is bounded then: nobody knows how many spaces a prompt that fits the context has."""


def most_bytes(target: Target) -> int:
    """Return the longest text, in bytes, that is tokenized."""
    most = target.longest_token_bytes * target.info.context_tokens
    return most if target.token_bytes.spells_any_bytes else LOSSY_FACTOR * most


def check_length(field: str, text: str, target: Target, most: int) -> None:
    """Refuse a text of more than ``most`` bytes, before it is tokenized."""
    length = len(text) if len(text) > most else len(text.encode())
    if length > most:
        lossless = target.token_bytes.spells_any_bytes
        told = "" if lossless else f" are read of a text, {LOSSY_FACTOR} times what"
        raise ContextExceeded(
            field,
            f"{length} bytes or more exceed the {most} that{told} {target.info.context_tokens} "
            f"tokens of at most {target.longest_token_bytes} bytes can hold",
        )


def check_room(field: str, num_tokens: int, target: Target, room: int) -> None:
    """Refuse no tokens, and so many that the context has no ``room`` behind them."""
    if not num_tokens:
        raise InvalidField(field, "must not be empty")
    most = target.info.context_tokens
    if num_tokens + room > most:
        told = "leave no room for an answer in" if room else "exceed"
        raise ContextExceeded(field, f"{num_tokens} tokens {told} the context of {most} tokens")
