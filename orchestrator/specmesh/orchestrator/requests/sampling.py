"""The sampling parameters of a request, checked against its model and its prompt, and settled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tokenizers import Tokenizer

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.sampling import Sampling
from specmesh.orchestrator.admission.request_limits import (
    MAX_BAD_WORD_CHARS,
    MAX_BAD_WORDS,
    MAX_BANNED_SEQUENCE,
    MAX_BANNED_SEQUENCES,
    SEED_BITS,
)
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.requests.stopping import Stopping
from specmesh.serving.codec.token_choice import check_choice, check_ids
from specmesh.serving.codec.wire import read_sampling
from specmesh.v1 import sampling_pb2


def settle_sampling(
    given: sampling_pb2.SamplingParameters,
    num_prompt: int,
    target: Target,
    stopping: Stopping,
    seed: int,
    asked_tokens: int | None = None,
) -> Sampling:
    """Return the parameters ``given`` for a prompt of ``num_prompt`` tokens as replicas get them;
    ``seed`` is used if there is none. ``asked_tokens`` are the most tokens that the request asks
    for, which ``stopping`` has cut to the context. Raises ``InvalidField``."""
    message = sampling_pb2.SamplingParameters()
    message.CopyFrom(given)
    message.ClearField("bad_words")
    message.ClearField("end_token_ids")
    sampling = read_sampling(message, seed=seed)
    if sampling.seed >> SEED_BITS:
        raise InvalidField("sampling.seed", f"must be below 2**{SEED_BITS}")
    banned = {*sampling.banned_sequences, *_sequences_of(given, target.tokenizer)}
    if len(banned) > MAX_BANNED_SEQUENCES:
        reason = f"has more than {MAX_BANNED_SEQUENCES}, with the two that each bad word makes"
        raise InvalidField("sampling.banned_sequences", reason)
    sampling = replace(sampling, banned_sequences=tuple(sorted(banned)))
    num_own = given.num_prompt_tokens if given.HasField("num_prompt_tokens") else num_prompt
    if num_own > num_prompt:
        reason = f"must be at most {num_prompt}, the tokens of the prompt"
        raise InvalidField("sampling.num_prompt_tokens", reason)
    if not sampling.needs_processing:
        return replace(sampling, num_prompt_tokens=0)
    check_ids(sampling, target.info.vocab_size)
    if sampling.grammar is not None and stopping.ignore_end_of_text:
        reason = "excludes sampling.grammar: a text that is complete must end"
        raise InvalidField("stopping.ignore_end_of_text", reason)
    sampling = replace(sampling, num_prompt_tokens=num_own)
    if sampling.min_tokens:
        fewest = _fewest_tokens(sampling, num_prompt, stopping.max_tokens, asked_tokens)
        ends = set(stopping.stop_token_ids)
        if not stopping.ignore_end_of_text:
            ends.update(target.info.end_of_text_ids)
        sampling = replace(sampling, min_tokens=fewest, end_token_ids=tuple(sorted(ends)))
    check_choice(sampling, target.info.vocab_size)
    return sampling


def num_without_stop(sampling: Sampling | sampling_pb2.SamplingParameters, num_prompt: int) -> int:
    """Return the number of tokens behind the prompt that can't end an answer with the settled
    ``sampling``."""
    return max(0, sampling.num_prompt_tokens + sampling.min_tokens - num_prompt)


def _fewest_tokens(
    sampling: Sampling, num_prompt: int, max_tokens: int, asked_tokens: int | None
) -> int:
    """Return ``min_tokens``, cut to the room of the answer if what the request asks for was."""
    num_before = num_prompt - sampling.num_prompt_tokens
    room = num_before + max_tokens
    if asked_tokens is None and sampling.min_tokens > room:
        reason = f"must be at most {room}: there is room for no more"
        raise InvalidField("sampling.min_tokens", reason)
    if asked_tokens is not None and sampling.min_tokens > num_before + asked_tokens:
        raise InvalidField("sampling.min_tokens", "must be at most stopping.max_tokens")
    return min(sampling.min_tokens, room)


def _sequences_of(
    message: sampling_pb2.SamplingParameters, tokenizer: Tokenizer
) -> Iterator[tuple[int, ...]]:
    """Yield the tokens of each bad word as it begins a text, and as it follows a space."""
    if len(message.bad_words) > MAX_BAD_WORDS:
        raise InvalidField("sampling.bad_words", f"has more than {MAX_BAD_WORDS} entries")
    for at, word in enumerate(message.bad_words):
        field = f"sampling.bad_words[{at}]"
        if not 0 < len(word) <= MAX_BAD_WORD_CHARS:
            raise InvalidField(field, f"must have 1 to {MAX_BAD_WORD_CHARS} characters")
        for text in (word, f" {word.lstrip()}"):
            tokens = tuple(tokenizer.encode(text, add_special_tokens=False).ids)
            if not tokens:
                raise InvalidField(field, "has no tokens")
            if len(tokens) > MAX_BANNED_SEQUENCE:
                reason = f"becomes {len(tokens)} tokens; at most {MAX_BANNED_SEQUENCE}"
                raise InvalidField(field, reason)
            yield tokens
