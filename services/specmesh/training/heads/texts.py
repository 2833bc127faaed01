"""The texts on which heads are trained and measured, as the target's tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from specmesh.inference.model import ModelDescription
from specmesh.models import corpus
from specmesh.models.corpus import SourceFile
from specmesh.training.tokenizer import Tokens

LEAST_TOKENS = 4096


class CorpusUnfit(ValueError):
    """The corpus is too small, or the work folder belongs to another corpus."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Files of a corpus, one after the other, as token ids ``[n]``; see ``models.corpus.split``."""

    training: Tokens
    held_out: Tokens


def read_texts(sources: Path, pattern: str, description: ModelDescription, work: Path) -> Texts:
    """Read the files below ``sources`` whose names match ``pattern``, as tokens of the described
    model.

    Each file ends with the model's end of text, if it has one. The tokens are kept in ``work`` for
    the next run. Raises ``CorpusUnfit``.
    """
    files = corpus.split(corpus.read_sources(sources, pattern))
    parts = {"training": files.training, "held_out": files.held_out}
    manifest = {name: {file.path: file.sha256 for file in part} for name, part in parts.items()}
    record = work / "corpus.json"
    if not record.exists():
        work.mkdir(parents=True, exist_ok=True)
        for name, part in parts.items():
            np.save(work / f"{name}.npy", _encode(description, part))
        # Written last: if it exists, so do the other files.
        record.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    elif json.loads(record.read_text(encoding="utf-8")) != manifest:
        raise CorpusUnfit(f"{work} was begun with files other than those in {sources}")
    texts = Texts(*(np.load(work / f"{name}.npy") for name in parts))
    for name, tokens in (("to train on", texts.training), ("held out", texts.held_out)):
        if len(tokens) < LEAST_TOKENS:
            raise CorpusUnfit(
                f"{sources} holds {len(tokens)} tokens {name} in files {pattern}, fewer than "
                f"{LEAST_TOKENS}"
            )
    return texts


def _encode(description: ModelDescription, files: Sequence[SourceFile]) -> Tokens:
    tokenizer: Any = Tokenizer.from_str(description.tokenizer_json)
    dtype = np.uint16 if description.vocab_size <= 1 << 16 else np.uint32
    end = description.end_of_text_ids[:1]
    parts = [
        np.array([*encoding.ids, *end], dtype=dtype)
        for encoding in tokenizer.encode_batch([file.text for file in files])
    ]
    found: Tokens = np.concatenate([np.empty(0, dtype), *parts])
    return found
