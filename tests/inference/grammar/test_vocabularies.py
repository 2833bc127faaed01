"""The engine of grammars and the orchestrator's decoder agree on what each token says."""

import pytest
from tests.inference.grammar.vocabularies import description_of, shipped_vocabulary, tokens_in
from tests.orchestrator.byte_tokenizers import byte_fallback, byte_level
from tokenizers import AddedToken

from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.inference.grammar.grammars import Grammars
from specmesh.inference.grammar.states import GrammarState
from specmesh.inference.grammar.vocabulary import Vocabulary
from specmesh.orchestrator.text.token_bytes import TokenBytes

END = "</s>"
WORDS = ["▁the", "▁", "é", '▁{"', "\n", "▁▁", "the", "中文"]
NO_TEXT = b"\xff"
"""A byte that occurs in no text."""


def ending(tokenizer):
    tokenizer.add_special_tokens([AddedToken(END, special=True)])
    return tokenizer


TOKENIZERS = {
    "shipped": shipped_vocabulary()[1],
    "byte-level": ending(byte_level([bytes([each]) for each in range(256)] + [b"ab", b"\xc3\xa9"])),
    "byte fallback": ending(byte_fallback(WORDS)),
}


def vocabulary_of(tokenizer):
    size = tokenizer.get_vocab_size()
    ends = [token for token, each in tokenizer.get_added_tokens_decoder().items() if each.special]
    return Vocabulary.of(description_of(tokenizer.to_str(), size, ends[0]))


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_token_says_the_same_to_both(name):
    tokenizer = TOKENIZERS[name]
    told, vocabulary = TokenBytes(tokenizer), vocabulary_of(tokenizer)
    for token in range(tokenizer.get_vocab_size()):
        if token not in told.special and told(token) != NO_TEXT:
            said = vocabulary._tokenizer.decode_bytes([token])
            assert said == told.after((token, token), token), token


@pytest.mark.parametrize("name", TOKENIZERS)
def test_what_a_mask_allows_goes_on_with_the_text(name):
    tokenizer = TOKENIZERS[name]
    told, vocabulary = TokenBytes(tokenizer), vocabulary_of(tokenizer)
    text = ' {"the é'.encode()
    grammar = Grammar(GrammarKind.REGEX, r' \{"the é')
    state = GrammarState(vocabulary.compile(grammar))
    expected = {
        token
        for token in range(tokenizer.get_vocab_size())
        if token not in told.special and told(token) and text.startswith(told(token))
    }
    assert tokens_in(state.allowed()) == expected


def test_a_tokenizer_on_which_the_engine_fails_has_no_grammars():
    tokenizer = ending(byte_fallback(["<0x4>"]))
    description = description_of(tokenizer.to_str(), tokenizer.get_vocab_size(), 257)
    with pytest.raises(ValueError, match="the engine fails on this tokenizer"):
        Vocabulary.of(description)
    assert Grammars.of(description) is None
