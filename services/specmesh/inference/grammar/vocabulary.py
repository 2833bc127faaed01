"""A model's tokens as the engine of grammars knows them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.decoding.processing.masks import Bits
from specmesh.inference.grammar.deep_stack import deep_thread
from specmesh.inference.grammar.sources import lark_of, reason_of
from specmesh.inference.model import ModelDescription

if TYPE_CHECKING:  # imported only where grammars are possible
    from llguidance import LLMatcher, LLTokenizer

FIELD = "sampling.grammar"
MAX_ROW_ITEMS = 500
"""Bounds the time that a byte of an ambiguous grammar may take, some milliseconds, which grows with
its square. An object with 120 optional properties has as many."""
MAX_LEXER_STATES = 20_000
"""Bounds the memory of a grammar, some 20 MB. All answers of a grammar together find its states,
one for each byte of strings whose length is bounded."""
LEXER_FUEL = 500_000
"""Bounds the time to compile a grammar, most of a second."""
MAX_FAILURES = 16
"""The most answers of a grammar that are remembered as too complex."""


class CompiledGrammar:
    """A grammar for the tokens of one model, which ``compile_`` compiles. ``end`` is the mask of
    those that end a text."""

    def __init__(self, grammar: Grammar, compile_: Callable[[], LLMatcher], end: Bits) -> None:
        self.field = f"{FIELD}.{grammar.kind}"
        self.end = end
        self.counts_tokens = grammar.kind is GrammarKind.EBNF and "max_tokens" in grammar.text
        """True if its rules may hold a number of tokens."""
        self.beginning = compile_()
        """The engine's matcher at the beginning of a text, which never moves. Its copies share one
        lexer."""
        self._compile = compile_
        self._failures: deque[tuple[list[int], InvalidField]] = deque(maxlen=MAX_FAILURES)

    def fail(self, tokens: Sequence[int], error: InvalidField) -> None:
        """Remember that the grammar is too complex to be followed to the end of ``tokens``."""
        self._failures.append((list(tokens), error))

    def check(self, tokens: list[int]) -> None:
        """Raise what an answer that begins ``tokens`` has failed with before: to find out again
        would take as long."""
        for begun, error in self._failures:
            if tokens[: len(begun)] == begun:
                raise InvalidField(error.field, error.reason)

    def matcher(self) -> LLMatcher:
        """Return the engine's matcher at the beginning of a text."""
        return self.beginning.deep_copy()

    def compile_again(self) -> None:
        """Begin with a lexer that no answer has used: what it may keep in memory is the same for
        all of them together, and once that is used up it takes nothing any more."""
        with deep_thread() as thread:
            self.beginning = thread.submit(self._compile).result()


class Vocabulary:
    """The tokens of a model that has tokens which end a text."""

    def __init__(self, tokenizer: LLTokenizer, end_of_text_ids: tuple[int, ...]) -> None:
        self.end_of_text_ids = frozenset(end_of_text_ids)
        self._tokenizer = tokenizer
        ends = np.isin(np.arange(tokenizer.vocab_size), end_of_text_ids)
        self._end = np.packbits(ends, bitorder="little")

    @classmethod
    def of(cls, description: ModelDescription) -> Self:
        """Return the tokens of a model. Raises ``ValueError`` for a tokenizer that the engine can't
        read, or without an end of text, and ``ImportError`` if the engine isn't installed."""
        from llguidance import LLTokenizer

        ends = description.end_of_text_ids
        if not description.tokenizer_json or not ends:
            raise ValueError("there is no tokenizer, or no token that ends a text")
        try:
            return cls(LLTokenizer(description.tokenizer_json, eos_token=list(ends)), ends)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # Rust's, which is no Exception
                raise
            raise ValueError(f"the engine fails on this tokenizer: {error}") from error

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Compile ``grammar``. Raises ``InvalidField`` for one that is wrong or not supported.

        The compiler recurses along the source: with ``MAX_GRAMMAR_BYTES`` it may need 64 MiB of
        stack.
        """
        from llguidance import LLMatcher, LLParserLimits

        try:
            source = LLMatcher.grammar_from_lark(lark_of(grammar))
        except InvalidField as error:
            raise InvalidField(f"{FIELD}.{error.field}", error.reason) from error
        limits = LLParserLimits(
            max_items_in_row=MAX_ROW_ITEMS,
            initial_lexer_fuel=LEXER_FUEL,
            max_lexer_states=MAX_LEXER_STATES,
            verbose_errors=False,
        )
        compile_ = partial(LLMatcher, self._tokenizer, source, log_level=0, limits=limits)
        compiled = CompiledGrammar(grammar, compile_, self._end)
        if compiled.beginning.is_error():
            raise InvalidField(compiled.field, reason_of(compiled.beginning.get_error(), grammar))
        beginning = compiled.matcher()
        beginning.compute_bitmask()
        if is_dead_end(beginning):
            raise InvalidField(compiled.field, "allows no text at all")
        return compiled


def is_dead_end(matcher: LLMatcher) -> bool:
    """Return whether a mask has shown that no text goes on or ends where ``matcher`` is."""
    return matcher.get_error().startswith("NoExtension")
