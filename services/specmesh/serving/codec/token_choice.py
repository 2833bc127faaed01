"""Sampling parameters that name tokens, checked against the vocabulary of a model."""

from __future__ import annotations

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import Sampling
from specmesh.serving.codec.wire import check_tokens


def check_ids(sampling: Sampling, vocab_size: int) -> None:
    """Raise ``InvalidField`` for an id outside the vocabulary."""
    for token, _ in sampling.logit_bias:
        if token >= vocab_size:
            reason = f"is outside the vocabulary of {vocab_size}"
            raise InvalidField(f"sampling.logit_bias[{token}]", reason)
    check_tokens("sampling.allowed_token_ids", sampling.allowed_token_ids, vocab_size)
    check_tokens("sampling.banned_token_ids", sampling.banned_token_ids, vocab_size)
    for at, sequence in enumerate(sampling.banned_sequences):
        check_tokens(f"sampling.banned_sequences[{at}].token_ids", sequence, vocab_size)


def check_choice(sampling: Sampling, vocab_size: int) -> None:
    """Raise ``InvalidField`` if no token may be generated, or none before ``min_tokens``."""
    ends = sampling.end_token_ids if sampling.min_tokens else ()
    banned, allowed = set(sampling.banned_token_ids), sampling.allowed_token_ids
    choice = allowed or range(vocab_size)
    if not banned.union(ends).issuperset(choice):
        return
    if not banned.issuperset(choice):
        field = "min_tokens"
    else:
        field = "allowed_token_ids" if allowed else "banned_token_ids"
    raise InvalidField(f"sampling.{field}", "leaves no token that may be generated")
