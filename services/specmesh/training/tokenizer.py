"""Byte-level BPE for source code, and the token arrays made with it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from specmesh.models.corpus import SourceFile

VOCAB_SIZE = 4096
END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


def train_tokenizer(files: Iterable[SourceFile]) -> Tokenizer:
    """Train the vocabulary; token 0 is ``END_OF_TEXT``, which also opens every file."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((file.text for file in files), trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, files: Iterable[SourceFile]) -> Tokens:
    """Return one flat array ``[num_tokens]`` of all files, each opened by ``END_OF_TEXT``."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    parts = [
        np.array([end, *encoding.ids], dtype=np.uint16)
        for encoding in tokenizer.encode_batch([file.text for file in files])
    ]
    return np.concatenate(parts)


def save(tokenizer: Tokenizer, folder: Path, context_tokens: int) -> None:
    """Write the Hugging Face tokenizer files of a model with this context into ``folder``."""
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_max_length=context_tokens,
    ).save_pretrained(folder)
