"""Models of a few tokens whose logits stand in a table: the truth is known before any answer.

Which row of the table a context has is a hash of all its tokens, so an answer assembled
wrongly anywhere is wrong from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models

from specmesh.decoding.sampling import Sampling, choose
from specmesh.decoding.simulated.hashed import chained
from specmesh.serving.templates.tokenizers import fingerprint
from specmesh.v1 import model_pb2

END_OF_TEXT = 0
VOCAB_SIZE = 12
CONTEXT_TOKENS = 256
_NUM_ROWS = 256
_DRAFTER = 1 << 42


def _rows() -> NDArray[np.float32]:
    rows = np.random.default_rng(7).normal(scale=2.0, size=(_NUM_ROWS, VOCAB_SIZE))
    rows[:, END_OF_TEXT] -= 4  # most answers are as long as they may be
    return rows.astype(np.float32)


_ROWS = _rows()


def _tokenizer() -> Tokenizer:
    vocabulary = {chr(ord("a") + token): token for token in range(VOCAB_SIZE)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="a"))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


TOKENIZER_JSON = _tokenizer().to_str()
_FINGERPRINT = fingerprint(TOKENIZER_JSON)


def text(tokens: Sequence[int]) -> str:
    """A letter for each token."""
    return "".join(chr(ord("a") + token) for token in tokens)


def model_info(name: str) -> model_pb2.ModelInfo:
    """What a replica says of itself."""
    return model_pb2.ModelInfo(
        name=name,
        vocab_size=VOCAB_SIZE,
        context_tokens=CONTEXT_TOKENS,
        end_of_text_ids=[END_OF_TEXT],
        tokenizer_fingerprint=_FINGERPRINT,
        num_parameters=7,
        backend="schedule",
        weights_digest=name,
        dtype="float32",
        features=[number for number in model_pb2.ModelFeature.values() if number],
    )


def state_after(tokens: Sequence[int], state: int = 1) -> int:
    """Names a context."""
    return reduce(chained, tokens, state)


def target_logits(state: int) -> NDArray[np.float32]:
    """``[VOCAB_SIZE]`` after the context that ``state`` names."""
    row: NDArray[np.float32] = _ROWS[state % _NUM_ROWS]
    return row


def drafter_logits(state: int, agreement: float) -> NDArray[np.float32]:
    """The target's with probability ``agreement``, else those of another context."""
    noise = chained(state, _DRAFTER)
    if (noise >> 32) % 1000 < agreement * 1000:
        return target_logits(state)
    return target_logits(noise)


@lru_cache(maxsize=64)
def truth(prompt: tuple[int, ...], max_tokens: int, sampling: Sampling) -> tuple[int, ...]:
    """What the target alone answers, in greedy and in coupled mode."""
    state, said = state_after(prompt), []
    for position in range(len(prompt), len(prompt) + max_tokens):
        token = choose(target_logits(state), sampling, position)
        said.append(token)
        state = chained(state, token)
        if token == END_OF_TEXT:
            break
    return tuple(said)
