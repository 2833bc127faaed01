"""Places in the texts of a grammar, reached token by token."""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice
from typing import NamedTuple

import numpy as np

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.processing.masks import Bits
from specmesh.inference.grammar.compiler import MAX_COMPILED
from specmesh.inference.grammar.vocabulary import CompiledGrammar, is_dead_end

MAX_STATES = 1024
"""Far more than the calls that share a forward pass, since one whose state is gone goes through its
whole answer again. A state takes some 0.2 MB besides its grammar, and 160 bytes for each token of
its answer."""
MAX_STATE_TOKENS = 1 << 21
"""The most tokens of the answers of all states."""
MATCH_SECONDS = 1.0
"""The most of the processor's time that going through an answer may take, however busy the machine
is. Most grammars take 2 µs a token; limits of the engine end the work on nearly all others sooner.
"""
_PART_TOKENS = 16
NEAR_TOKENS = 64
"""The most tokens that a state goes back for another answer. Going farther, it would no longer
serve its own."""
MAX_TRIED = 8
"""The most states that are compared with an answer."""


class GrammarState:
    """A place in the texts of ``compiled``, behind ``tokens``.

    It moves to any other tokens, and what it allows there is a function of them alone. A text that
    has ended, or that has left the grammar, can only end.
    """

    def __init__(self, compiled: CompiledGrammar) -> None:
        self.compiled = compiled
        self.tokens: list[int] = []
        self._beginning = compiled.beginning
        self._matcher = compiled.matcher()
        self._num_matched = 0
        """The first tokens, which the matcher has taken."""
        self._allowed: Bits | None = None
        """The tokens allowed after ``tokens``; None until they are asked for."""

    def move_to(self, tokens: list[int]) -> None:
        """Move behind ``tokens``. Raises ``InvalidField`` where the grammar is too complex to be
        followed."""
        if tokens != self.tokens:
            self._allowed = None
        num_shared = shared_length(self.tokens, tokens)
        del self.tokens[num_shared:]
        if self._num_matched > num_shared:
            self._go_back()
        if self._num_matched == num_shared:
            self._match(tokens[num_shared:])
        self.tokens += tokens[num_shared:]

    @property
    def has_failed(self) -> bool:
        """True once a limit of the engine was reached: the state is of no use any more."""
        return self._matcher.is_error()

    @property
    def is_outdated(self) -> bool:
        """True once the lexer that it shares was used up and replaced."""
        return self._beginning is not self.compiled.beginning

    def allowed(self) -> Bits:
        """Return the tokens that may come next, at least one: those that end the text exactly where
        it may end. Raises as ``move_to`` does."""
        if self._allowed is None:
            self._allowed = self._find_allowed()
        return self._allowed

    def _find_allowed(self) -> Bits:
        self._check()
        if self._num_matched == len(self.tokens) and not self._matcher.is_stopped():
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            if not is_dead_end(self._matcher):
                self._check()
                return bits
            self._begin_again()
        self._check_lexer()
        return self.compiled.end

    def _go_back(self) -> None:
        """Take the matcher back to the end of ``tokens``.

        It keeps its latest mask, and takes it for that of any place as deep where the same
        terminals may come next. It would be wrong on another branch: one from here replaces it.
        """
        if self.compiled.counts_tokens:  # the matcher does not take back what it has counted
            self._begin_again()
            return
        self._matcher.rollback(self._num_matched - len(self.tokens))
        self._num_matched = len(self.tokens)
        self._matcher.compute_bitmask()
        if is_dead_end(self._matcher):
            self._begin_again()
        self._check()

    def _begin_again(self) -> None:
        """Replace the matcher, which is of no use behind a dead end, by one behind ``tokens``."""
        self._matcher, self._num_matched = self._beginning.deep_copy(), 0
        self._match(self.tokens)

    def _match(self, tokens: list[int]) -> None:
        """Match ``tokens`` as far as the grammar goes. Rules that are ambiguous without bound take
        longer with every token, and other calls wait meanwhile."""
        latest_s = time.thread_time() + MATCH_SECONDS
        for first in range(0, len(tokens), _PART_TOKENS):
            part = tokens[first : first + _PART_TOKENS]
            num_matched = self._matcher.try_consume_tokens(part)
            self._num_matched += num_matched
            self._check()
            if num_matched < len(part):
                return
            if time.thread_time() > latest_s:
                raise self._too_complex("the rules are too ambiguous")

    def _check(self) -> None:
        if self.has_failed:
            raise self._too_complex(self._matcher.get_error().partition("\n")[0])

    def _check_lexer(self) -> None:
        """Raise if the lexer is used up, before a text is said to have ended: matchers then take
        no token, or end, and only masks report an error."""
        probe = self._beginning.deep_copy()
        probe.compute_bitmask()
        if probe.is_error():
            self._matcher = probe
            self._check()

    def _too_complex(self, reason: str) -> InvalidField:
        number = self._num_matched
        return InvalidField(self.compiled.field, f"is too complex behind {number} tokens: {reason}")


class TextPlace(NamedTuple):
    """A number of blocks of ``NEAR_TOKENS`` in a grammar, and the tokens of the last of them."""

    compiled: CompiledGrammar
    num_blocks: int
    last: tuple[int, ...]


class RecentStates:
    """The states of recent calls, so that a call need not go through its whole answer. Only one
    thread uses them."""

    def __init__(
        self,
        most: int = MAX_STATES,
        most_tokens: int = MAX_STATE_TOKENS,
        most_grammars: int = MAX_COMPILED,
    ) -> None:
        self._most = most
        self._most_grammars = most_grammars
        self._most_blocks = most_tokens // NEAR_TOKENS
        self._num_blocks = 0
        self._places: dict[GrammarState, TextPlace] = {}
        """The end of the latest answer of each state, the latest state last."""
        self._at: dict[TextPlace, dict[GrammarState, None]] = {}
        self._num_by_grammar = Counter[CompiledGrammar]()
        """The states of each grammar, which they keep in memory."""

    def near(self, compiled: CompiledGrammar, tokens: list[int]) -> GrammarState:
        """Return a state of ``compiled`` that is not far from ``tokens``, or a new one."""
        state = self._find(compiled, tokens) or GrammarState(compiled)
        self._remove(state)
        self._add(state, _place(compiled, tokens, len(tokens) // NEAR_TOKENS))
        return state

    def begin_again(self, compiled: CompiledGrammar, tokens: list[int]) -> GrammarState:
        """Return a state that shares nothing with any other answer, once one of ``compiled`` has
        failed. The others are let go with the lexer that they share."""
        compiled.compile_again()
        for state in [each for each, place in self._places.items() if place.compiled is compiled]:
            self._remove(state)
        return self.near(compiled, tokens)

    def _find(self, compiled: CompiledGrammar, tokens: list[int]) -> GrammarState | None:
        """Return the state that shares most tokens among the latest ones that share a block."""
        for num_blocks in range(len(tokens) // NEAR_TOKENS, -1, -1):
            best, most = None, -1
            here = self._at.get(_place(compiled, tokens, num_blocks), {})
            for state in islice(reversed(here), MAX_TRIED):
                num_shared = shared_length(state.tokens, tokens)
                if num_shared > most and len(state.tokens) - num_shared <= NEAR_TOKENS:
                    best, most = state, num_shared
            if best is not None:
                return best
        return None

    def _add(self, state: GrammarState, place: TextPlace) -> None:
        self._places[state] = place
        self._at.setdefault(place, {})[state] = None
        self._num_blocks += place.num_blocks
        self._num_by_grammar[place.compiled] += 1
        while self._are_too_many and len(self._places) > 1:  # the last is the one asked for
            self._remove(next(iter(self._places)))

    @property
    def _are_too_many(self) -> bool:
        return (
            len(self._places) > self._most
            or self._num_blocks > self._most_blocks
            or len(self._num_by_grammar) > self._most_grammars
        )

    def _remove(self, state: GrammarState) -> None:
        place = self._places.pop(state, None)
        if place is not None:
            self._num_blocks -= place.num_blocks
            self._num_by_grammar[place.compiled] -= 1
            if not self._num_by_grammar[place.compiled]:
                del self._num_by_grammar[place.compiled]
            here = self._at[place]
            del here[state]
            if not here:
                del self._at[place]


def _place(compiled: CompiledGrammar, tokens: list[int], num_blocks: int) -> TextPlace:
    end = num_blocks * NEAR_TOKENS
    return TextPlace(compiled, num_blocks, tuple(tokens[max(0, end - NEAR_TOKENS) : end]))


def shared_length(ours: list[int], theirs: list[int]) -> int:
    """Return the number of first tokens in which two lists agree."""
    length = min(len(ours), len(theirs))
    if ours[:length] == theirs[:length]:
        return length
    return next(at for at in range(length) if ours[at] != theirs[at])
