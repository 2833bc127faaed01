"""Tokenizers of every kind that models come with, small and made on the spot."""

from __future__ import annotations

from collections.abc import Callable

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

BEGINNING, END, TURN = "<s>", "</s>", "<|turn|>"
SPECIAL = [BEGINNING, END, TURN]
CORPUS = ["größer für über 東京 日本語 🙂🙂 hello hello, world! don't return", "def f(x): return x"]
BYTES = [f"<0x{value:02X}>" for value in range(256)]
ALPHABET = sorted({letter for text in CORPUS for letter in text.replace(" ", "▁")})


def gpt2() -> Tokenizer:
    """A byte-level BPE; the first token of a text is written as if a space came before it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def llama2() -> Tokenizer:
    """SentencePiece's BPE as Llama 2 has it: the first space of a text is dropped."""
    tokenizer = _with_bytes()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def gemma() -> Tokenizer:
    """SentencePiece's BPE as Gemma has it: spaces are kept."""
    tokenizer = _with_bytes()
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def t5() -> Tokenizer:
    """SentencePiece's Unigram, with pieces for the special tokens among the others."""
    pieces = [*SPECIAL, "<unk>", "▁", "▁hello", "▁world", "▁▁", *ALPHABET, *"</s>|tun"]
    scores = {piece: 0.0 if piece in SPECIAL else -float(n) for n, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.Unigram(list(scores.items()), unk_id=pieces.index("<unk>")))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def xglm() -> Tokenizer:
    """Unigram as XGLM has it, whose normalizer may turn text into the pieces for special tokens."""
    tokenizer = t5()
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    return tokenizer


def bert() -> Tokenizer:
    """WordPiece: a word's first piece has the space before it, and punctuation takes it away."""
    words = ["[UNK]", "hello", "world", "##ing", "##s", "don", "n't", ",", "!", ".", *"abe", "##a"]
    tokenizer = Tokenizer(models.WordPiece(dict(zip(words, range(len(words)), strict=True))))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def gpt1() -> Tokenizer:
    """A BPE that marks the ends of words: a space comes with the token after it."""
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=120, special_tokens=SPECIAL, end_of_word_suffix="</w>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def words() -> Tokenizer:
    """Whole words, and no decoder: spaces stand between tokens."""
    vocab = {word: n for n, word in enumerate(["<unk>", "hello", "world", "é", "!"])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def _with_bytes() -> Tokenizer:
    pieces = [*SPECIAL, "<unk>", *BYTES, *ALPHABET, "he", "ll", "▁w", "▁▁", "hell", "ello"]
    vocab = {piece: n for n, piece in enumerate(dict.fromkeys(pieces))}
    merges = [("h", "e"), ("l", "l"), ("▁", "w"), ("▁", "▁"), ("he", "ll")]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>")
    )
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def _with_added_tokens(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("東 tool")])
    return tokenizer


MADE: list[Callable[[], Tokenizer]] = [gpt2, llama2, gemma, t5, xglm, bert, gpt1, words]
ZOO = {make.__name__: _with_added_tokens(make()) for make in MADE}


def beginning_with(tokenizer: Tokenizer, token: str = BEGINNING) -> Tokenizer:
    """A copy that puts ``token`` before every text."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, copy.token_to_id(token))]
    )
    return copy


def as_trained(tokenizer: Tokenizer) -> Tokenizer:
    """A copy with what training leaves in the file: texts are cut off and padded."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.enable_truncation(max_length=4)
    copy.enable_padding(length=16, pad_id=copy.token_to_id(END), pad_token=END)
    return copy
