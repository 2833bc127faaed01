"""A target and a drafter whose logits are hashes of the prefix, and what they must say."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from specmesh.decoding.processing.processor import LogitProcessor
from specmesh.decoding.sampling import Sampling, choose
from specmesh.serving.templates.tokenizers import fingerprint
from specmesh.v1 import model_pb2

END_OF_TEXT = 0
CORPUS = ["größer für über 東京 日本語 🙂🙂 hello hello world return return", "def f(x): return x"]


def train_tokenizer(vocab_size: int) -> Tokenizer:
    """A byte-level BPE: most characters outside ASCII take several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


TOKENIZER = train_tokenizer(300)
TOKENIZER_JSON = TOKENIZER.to_str()
VOCAB_SIZE = TOKENIZER.get_vocab_size()
CONTEXT_TOKENS = 512
ALL_FEATURES = [number for number in model_pb2.ModelFeature.values() if number]


def features_but(feature: model_pb2.ModelFeature.ValueType) -> list[int]:
    """All features without one."""
    return [each for each in ALL_FEATURES if each != feature]


def model_info(name: str, **changes: object) -> model_pb2.ModelInfo:
    fields = {
        "name": name,
        "vocab_size": VOCAB_SIZE,
        "context_tokens": CONTEXT_TOKENS,
        "end_of_text_ids": [END_OF_TEXT],
        "tokenizer_fingerprint": fingerprint(TOKENIZER_JSON),
        "num_parameters": 7,
        "backend": "hash",
        "protocol_revision": 1,
        "features": ALL_FEATURES,
    }
    return model_pb2.ModelInfo(**fields | changes)


def _hash(tokens: Sequence[int], salt: bytes) -> int:
    packed = struct.pack(f"<{len(tokens)}I", *tokens)
    return int.from_bytes(blake2b(packed, digest_size=8, salt=salt).digest(), "little")


def target_logits(prefix: Sequence[int]) -> np.ndarray:
    """``[VOCAB_SIZE]``; the end of text is never chosen."""
    logits = np.random.default_rng(_hash(prefix, b"target")).normal(scale=4.0, size=VOCAB_SIZE)
    logits[END_OF_TEXT] = -np.inf
    return logits


def drafter_logits(prefix: Sequence[int], agreement: float) -> np.ndarray:
    """The target's with probability ``agreement``, else nothing alike."""
    key = _hash(prefix, b"drafter")
    if random.Random(key).random() < agreement:
        return target_logits(prefix)
    return np.random.default_rng(key).normal(scale=4.0, size=VOCAB_SIZE)


def target_only(prompt: Sequence[int], num_tokens: int, sampling: Sampling) -> list[int]:
    """The tokens that the target says on its own."""
    num_own = sampling.num_prompt_tokens or len(prompt)
    sampling = replace(sampling, num_prompt_tokens=num_own)
    tokens = list(prompt)
    for position in range(len(prompt), len(prompt) + num_tokens):
        logits = LogitProcessor(sampling, tokens).row(target_logits(tokens))
        tokens.append(choose(logits, sampling, position))
    return tokens[len(prompt) :]


def text_after(prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """What ``tokens`` add to the text of ``prompt``."""
    return TOKENIZER.decode([*prompt, *tokens])[len(TOKENIZER.decode(prompt)) :]
