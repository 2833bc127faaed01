"""Vocabularies of any size, made up: words, numbers, signs and characters of several scripts, all
in the spelling of byte-level tokenizers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from specmesh.inference.model import ModelDescription

_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
_SIGNS = "{}[]()\"':,.;=+-*/<>\n\t _#\\|&!?"
_SCRIPTS = ((0xC0, 0x24F), (0x400, 0x4FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3))
_LEAST = 300
"""The size of the smallest vocabulary: all bytes and a few pieces."""


def made_up(num_entries: int) -> ModelDescription:
    """Return a model that has nothing but a vocabulary of ``num_entries``."""
    assert num_entries >= _LEAST
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    entries = dict.fromkeys(sorted(pre_tokenizers.ByteLevel.alphabet()))
    for piece in _pieces(Random(num_entries)):  # noqa: S311
        if len(entries) == num_entries - 1:
            break
        ((entry, _),) = byte_level.pre_tokenize_str(piece)
        entries[entry] = None
    tokenizer = Tokenizer(models.BPE({entry: at for at, entry in enumerate(entries)}, []))
    tokenizer.pre_tokenizer = byte_level
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    return ModelDescription(
        name=f"made-up-{num_entries}",
        vocab_size=num_entries,
        context_tokens=0,
        end_of_text_ids=(num_entries - 1,),
        tokenizer_json=tokenizer.to_str(),
        num_parameters=0,
        backend="none",
        weights_digest="none",
    )


def _pieces(random: Random) -> Iterator[str]:
    weights = [1 / rank for rank in range(1, len(_LETTERS) + 1)]
    while True:
        word = "".join(random.choices(_LETTERS, weights, k=random.randint(2, 9)))
        yield from (word, f" {word}", word.title(), f"{random.randint(0, 999)}")
        yield "".join(random.choices(_SIGNS, k=random.randint(2, 5)))
        yield random.choice(" \n") * random.randint(1, 40)
        first, last = random.choice(_SCRIPTS)
        yield "".join(chr(random.randint(first, last)) for _ in range(random.randint(1, 3)))
