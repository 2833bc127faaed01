"""The mask of one call: what the grammar of its request allows behind the tokens of its prefix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.processing.masks import Bits
from specmesh.inference.grammar.states import GrammarState, RecentStates
from specmesh.inference.grammar.vocabulary import CompiledGrammar


class AnswerMask:
    """The ``TokenMask`` of ``compiled`` behind ``answer``, the tokens of the answer so far. Only
    the thread of its ``states`` uses it."""

    def __init__(
        self, compiled: CompiledGrammar, states: RecentStates, answer: Sequence[int]
    ) -> None:
        self._compiled = compiled
        self._states = states
        self._answer = list(answer)
        self._state: GrammarState | None = None

    def allowed(self, path: Sequence[int]) -> Bits:
        """Return the tokens that may follow the answer and then ``path``. Raises ``InvalidField``
        where the grammar is too complex to be followed."""
        tokens = [*self._answer, *path]
        self._compiled.check(tokens)
        try:
            return self._follow(tokens)
        except InvalidField as error:
            self._compiled.fail(tokens, error)
            raise

    def _follow(self, tokens: list[int]) -> Bits:
        state = self._state
        if state is None or state.is_outdated:
            state = self._states.near(self._compiled, self._answer)
        try:
            state.move_to(tokens)
            bits = state.allowed()
        except InvalidField:
            if not state.has_failed:
                raise
            # Limits of the engine are used up by all answers of a grammar together: only what this
            # one needs may decide on it.
            state = self._states.begin_again(self._compiled, self._answer)
            state.move_to(tokens)
            bits = state.allowed()
        self._state = state
        return bits


class DraftMask(AnswerMask):
    """The mask of a draft, which allows everything where its grammar can't be followed: the target
    decides."""

    def allowed(self, path: Sequence[int]) -> Bits:
        """Return the tokens worth drafting behind the answer and then ``path``."""
        try:
            return super().allowed(path)
        except InvalidField:
            return np.full_like(self._compiled.end, 255)
