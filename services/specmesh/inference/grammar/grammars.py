"""The grammars of a process with a model, compiled once for all calls."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Self

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.processing.masks import TokenMask
from specmesh.decoding.sampling import Sampling
from specmesh.inference.grammar.answer_mask import AnswerMask, DraftMask
from specmesh.inference.grammar.compiler import Compiler
from specmesh.inference.grammar.states import RecentStates
from specmesh.inference.grammar.vocabulary import Vocabulary
from specmesh.inference.model import ModelDescription
from specmesh.serving.errors import ResourceExhaustedStatus

log = logging.getLogger(__name__)

DRAFT_SECONDS = 0.02
"""The time for which a draft waits for the compiler. Most grammars take 2 ms."""


class Grammars:
    """Compiles the grammars of calls, and follows their answers."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._compiler = Compiler(vocabulary)
        self._states = RecentStates()

    @classmethod
    def of(cls, description: ModelDescription) -> Self | None:
        """Return the grammars of a model; None for a model whose texts can't follow any."""
        try:
            return cls(Vocabulary.of(description))
        except (ImportError, ValueError) as error:
            log.info("no grammars for this model", extra={"reason": str(error)})
            return None

    async def mask(self, sampling: Sampling, prefix: Sequence[int]) -> TokenMask | None:
        """Return the mask of an answer behind ``prefix``; None without a grammar. Raises what
        ``Compiler.compile`` does."""
        if sampling.grammar is None:
            return None
        compiled = await self._compiler.compile(sampling.grammar)
        return AnswerMask(compiled, self._states, prefix[sampling.num_prompt_tokens :])

    async def draft_mask(self, sampling: Sampling, prefix: Sequence[int]) -> TokenMask | None:
        """Return the mask of a draft behind ``prefix``; None without a grammar that can be
        followed by now."""
        if sampling.grammar is None:
            return None
        try:
            compiled = await self._compiler.compile(sampling.grammar, DRAFT_SECONDS)
        except (InvalidField, ResourceExhaustedStatus):
            return None
        return DraftMask(compiled, self._states, prefix[sampling.num_prompt_tokens :])

    def close(self) -> None:
        """End the compiler's thread, once it is idle."""
        self._compiler.close()
