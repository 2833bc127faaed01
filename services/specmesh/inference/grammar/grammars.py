"""The grammars of a process with a model, compiled once for all calls, on a thread of their own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.grammar import Grammar
from specmesh.decoding.processing.masks import TokenMask
from specmesh.decoding.sampling import Sampling
from specmesh.inference.grammar.answer_mask import AnswerMask, DraftMask
from specmesh.inference.grammar.states import RecentStates
from specmesh.inference.grammar.vocabulary import FIELD, CompiledGrammar, Vocabulary
from specmesh.inference.model import ModelDescription

log = logging.getLogger(__name__)

MAX_COMPILED = 64
COMPILE_SECONDS = 5.0
"""The time for which a call waits for the compiler, which can't be interrupted. The limits of the
engine end its work."""
STACK_BYTES = 256 << 20
"""Address space, of which the compiler touches only as much as the source is nested."""

Mask = TypeVar("Mask", bound=AnswerMask)


class Grammars:
    """Compiles the grammars of calls, and follows their answers."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._states = RecentStates()
        self._jobs: OrderedDict[Grammar, Future[CompiledGrammar]] = OrderedDict()
        """The latest grammars, wrong ones as well, the latest last."""
        self._compiler: ThreadPoolExecutor | None = None

    @classmethod
    def of(cls, description: ModelDescription) -> Self | None:
        """Return the grammars of a model; None for a model whose texts can't follow any."""
        try:
            return cls(Vocabulary.of(description))
        except (ImportError, ValueError) as error:
            log.info("no grammars for this model", extra={"reason": str(error)})
            return None

    async def mask(self, sampling: Sampling, prefix: Sequence[int]) -> TokenMask | None:
        """Return the mask of an answer behind ``prefix``; None without a grammar. Raises
        ``InvalidField`` for a grammar that can't be compiled, or not in time."""
        return await self._mask(AnswerMask, sampling, prefix)

    async def draft_mask(self, sampling: Sampling, prefix: Sequence[int]) -> TokenMask | None:
        """Return the mask of a draft behind ``prefix``; None without a grammar that can be
        followed."""
        try:
            return await self._mask(DraftMask, sampling, prefix)
        except InvalidField:
            return None

    def close(self) -> None:
        """End the compiler's thread, once it is idle."""
        if self._compiler is not None:
            self._compiler.shutdown(wait=False, cancel_futures=True)

    async def _mask(
        self, kind: type[Mask], sampling: Sampling, prefix: Sequence[int]
    ) -> Mask | None:
        if sampling.grammar is None:
            return None
        compiled = await self._compile(sampling.grammar)
        return kind(compiled, self._states, prefix[sampling.num_prompt_tokens :])

    async def _compile(self, grammar: Grammar) -> CompiledGrammar:
        if grammar not in self._jobs:
            self._jobs[grammar] = self._begin(grammar)
            if len(self._jobs) > MAX_COMPILED:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(grammar)
        job = self._jobs[grammar]
        if not job.done():
            compiling = asyncio.wrap_future(job)
            compiling.add_done_callback(_heed)
            await asyncio.wait({compiling}, timeout=COMPILE_SECONDS)
        if job.done() and not job.cancelled():
            return job.result()
        if job.cancel():  # it was not begun
            self._jobs.pop(grammar, None)
        reason = f"takes longer than {COMPILE_SECONDS:g} seconds to compile"
        raise InvalidField(f"{FIELD}.{grammar.kind}", reason)

    def _begin(self, grammar: Grammar) -> Future[CompiledGrammar]:
        if self._compiler is None:
            self._compiler = _deep_thread()
        return self._compiler.submit(self._vocabulary.compile, grammar)


def _heed(compiling: asyncio.Future[CompiledGrammar]) -> None:
    """Take the error of a grammar that nobody may wait for any more."""
    if not compiling.cancelled():
        compiling.exception()


def _deep_thread() -> ThreadPoolExecutor:
    """Return one thread with a stack of ``STACK_BYTES``."""
    executor = ThreadPoolExecutor(1, "grammar")
    usual = threading.stack_size(STACK_BYTES)
    try:
        executor.submit(int).result()  # starts the thread
    finally:
        threading.stack_size(usual)
    return executor
