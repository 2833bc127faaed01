"""Places in the texts of a grammar, reached token by token."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress

import numpy as np

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.processing.masks import Bits
from specmesh.inference.grammar.vocabulary import CompiledGrammar, is_dead_end

MAX_STATES = 256
"""A state takes some 0.2 MB, and 160 bytes for each token of its answer."""
MATCH_SECONDS = 1.0
"""The longest that a call may take to go through its answer. Most grammars take 2 µs a token."""
_PART_TOKENS = 16
NEAR_TOKENS = 64
"""The most tokens that a state goes back for another answer. Going farther, it would no longer
serve its own."""


class GrammarState:
    """A place in the texts of ``compiled``, behind ``tokens``.

    It moves to any other tokens, and what it allows there is a function of them alone. A text that
    has ended, or that has left the grammar, can only end.
    """

    def __init__(self, compiled: CompiledGrammar) -> None:
        self.compiled = compiled
        self.tokens: list[int] = []
        self._matcher = compiled.matcher()
        self._num_matched = 0
        """The first tokens, which the matcher has taken."""
        self._allowed: Bits | None = None
        """What may come behind ``tokens``, once it was asked for."""

    def move_to(self, tokens: list[int]) -> None:
        """Move behind ``tokens``. Raises ``InvalidField`` where the grammar is too complex to be
        followed."""
        if tokens != self.tokens:
            self._allowed = None
        num_shared = shared_length(self.tokens, tokens)
        back = self._num_matched - num_shared
        if back > 0:
            self._matcher.rollback(back)
            self._num_matched = num_shared
        del self.tokens[num_shared:]
        if self._num_matched == num_shared:
            self._match(tokens[num_shared:])
        self.tokens += tokens[num_shared:]

    @property
    def has_failed(self) -> bool:
        """True once a limit of the engine was reached: the state is of no use any more."""
        return self._matcher.is_error()

    def allowed(self) -> Bits:
        """Return the tokens that may come next, at least one: those that end the text exactly where
        it may end. Raises as ``move_to`` does."""
        if self._allowed is None:
            self._allowed = self._find_allowed()
        return self._allowed

    def _find_allowed(self) -> Bits:
        if self._num_matched < len(self.tokens):
            return self.compiled.end
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if is_dead_end(self._matcher):
            self._begin_again()
            return self.compiled.end
        self._check()
        return bits

    def _begin_again(self) -> None:
        """Replace the matcher, which is of no use behind a dead end."""
        self._matcher, self._num_matched = self.compiled.matcher(), 0
        self._match(self.tokens)

    def _match(self, tokens: list[int]) -> None:
        """Match ``tokens`` as far as the grammar goes. Rules that are ambiguous without bound take
        longer with every token, and other calls wait meanwhile."""
        latest_s = time.monotonic() + MATCH_SECONDS
        for first in range(0, len(tokens), _PART_TOKENS):
            part = tokens[first : first + _PART_TOKENS]
            num_matched = self._matcher.try_consume_tokens(part)
            self._num_matched += num_matched
            self._check()
            if num_matched < len(part):
                return
            if time.monotonic() > latest_s:
                raise self._too_complex("the rules are too ambiguous")

    def _check(self) -> None:
        if self.has_failed:
            raise self._too_complex(self._matcher.get_error().partition("\n")[0])

    def _too_complex(self, reason: str) -> InvalidField:
        number = self._num_matched
        return InvalidField(self.compiled.field, f"is too complex behind {number} tokens: {reason}")


class RecentStates:
    """The states of recent calls, the latest last, so that a call need not go through its whole
    answer. Only one thread uses them."""

    def __init__(self, most: int = MAX_STATES) -> None:
        self._states: deque[GrammarState] = deque(maxlen=most)

    def near(self, compiled: CompiledGrammar, tokens: list[int]) -> GrammarState:
        """Return a state of ``compiled`` that is not far from ``tokens``, or a new one."""
        best, most = None, -1
        for state in self._states:
            if state.compiled is compiled:
                num_shared = shared_length(state.tokens, tokens)
                if num_shared > most and len(state.tokens) - num_shared <= NEAR_TOKENS:
                    best, most = state, num_shared
        if best is None:
            best = GrammarState(compiled)
        else:
            self._states.remove(best)
        self._states.append(best)
        return best

    def renew(self, state: GrammarState) -> GrammarState:
        """Return a new state in place of one that has failed."""
        with suppress(ValueError):  # it need not be among the latest any more
            self._states.remove(state)
        self._states.append(GrammarState(state.compiled))
        return self._states[-1]


def shared_length(ours: list[int], theirs: list[int]) -> int:
    """Return the number of first tokens in which two lists agree."""
    length = min(len(ours), len(theirs))
    if ours[:length] == theirs[:length]:
        return length
    return next(at for at in range(length) if ours[at] != theirs[at])
