"""The compiler of grammars: one after the other, on a thread of its own, for those who wait."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from specmesh.decoding.grammar import Grammar
from specmesh.inference.grammar.deep_stack import deep_thread
from specmesh.inference.grammar.vocabulary import CompiledGrammar, Vocabulary
from specmesh.serving.errors import ResourceExhaustedStatus

MAX_COMPILED = 128
"""Most take 50 to 600 KB; by the limits of ``Vocabulary`` and of sources, none takes more than some
20 MB."""
MAX_WAITING = 64
COMPILE_SECONDS = 1.0
"""The time for which a call waits for the compiler, which can't be interrupted. The limits of the
engine end its work on a grammar within about as long."""
RETRY_SECONDS = 0.25


@dataclass(eq=False)
class _Job:
    grammar: Grammar
    result: asyncio.Future[CompiledGrammar]
    num_waiting: int = 0
    has_begun: bool = False


class Compiler:
    """Compiles grammars, and keeps the latest, wrong ones as well. Only one event loop uses it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._results: OrderedDict[Grammar, asyncio.Future[CompiledGrammar]] = OrderedDict()
        """The latest last."""
        self._jobs: dict[Grammar, _Job] = {}
        """The job that runs, and those that wait for it to end."""
        self._thread: ThreadPoolExecutor | None = None

    async def compile(self, grammar: Grammar, wait_s: float | None = None) -> CompiledGrammar:
        """Return ``grammar`` compiled. Raises ``InvalidField`` for one that is wrong, and
        ``ResourceExhaustedStatus`` if it is not compiled within ``wait_s``, by default
        ``COMPILE_SECONDS``."""
        if result := self._results.get(grammar):
            self._results.move_to_end(grammar)
            return result.result()
        job = self._jobs.get(grammar) or self._add(grammar)
        job.num_waiting += 1
        try:
            timeout_s = COMPILE_SECONDS if wait_s is None else wait_s
            await asyncio.wait({job.result}, timeout=timeout_s)
        finally:
            job.num_waiting -= 1
            if not job.num_waiting and not job.has_begun:
                del self._jobs[grammar]
        if job.result.done():
            return job.result.result()
        raise _busy(len(self._jobs))

    def close(self) -> None:
        """End the thread, once it is idle."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _add(self, grammar: Grammar) -> _Job:
        if len(self._jobs) > MAX_WAITING:
            raise _busy(len(self._jobs))
        job = _Job(grammar, asyncio.get_running_loop().create_future())
        self._jobs[grammar] = job
        self._go_on()
        return job

    def _go_on(self) -> None:
        """Begin the job with the shortest source, which takes least time as a rule, unless one
        runs: many long ones keep no short one waiting."""
        if not self._jobs or any(job.has_begun for job in self._jobs.values()):
            return
        job = min(self._jobs.values(), key=lambda job: len(job.grammar.text))
        if self._thread is None:
            self._thread = deep_thread()
        job.has_begun = True
        compile_ = self._vocabulary.compile
        compiling = asyncio.get_running_loop().run_in_executor(self._thread, compile_, job.grammar)
        compiling.add_done_callback(partial(self._end, job))

    def _end(self, job: _Job, compiling: asyncio.Future[CompiledGrammar]) -> None:
        if compiling.cancelled():  # the process ends
            return
        del self._jobs[job.grammar]
        if error := compiling.exception():
            job.result.set_exception(error)
            job.result.exception()  # nobody may wait for it any more
        else:
            job.result.set_result(compiling.result())
        self._results[job.grammar] = job.result
        if len(self._results) > MAX_COMPILED:
            self._results.popitem(last=False)
        self._go_on()


def _busy(number: int) -> ResourceExhaustedStatus:
    return ResourceExhaustedStatus(
        "COMPILER_BUSY", f"{number} grammars wait for the compiler", retry_after_s=RETRY_SECONDS
    )
