"""The tokenizer of simulated models."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers


def simulated_tokenizer(vocab_size: int) -> Tokenizer:
    """Return a tokenizer with one token for each byte of a text; ASCII decodes to itself.

    Every token decodes to something printable, so that an answer does not harm a terminal: bytes
    beyond ASCII stay in the alphabet of byte-level tokenizers. A vocabulary too small for all bytes
    lacks the rarer ones (its last token stands for them); a larger one has tokens that occur in no
    text.
    """
    # "Ġ" is the space, "Ċ" the newline, "ĉ" the tab.
    spelt = sorted(
        pre_tokenizers.ByteLevel.alphabet(), key=lambda letter: (letter not in "ĠĊ", letter)
    )
    entries = [*spelt, *(f"<{number}>" for number in range(len(spelt), vocab_size))][:vocab_size]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={entry: number for number, entry in enumerate(entries)},
            merges=[],
            unk_token=entries[-1],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.Sequence(
        [
            *(decoders.Replace(letter, text) for letter, text in zip("ĠĊĉ", " \n\t", strict=True)),
            decoders.Fuse(),
        ]
    )
    return tokenizer
