"""Two programs that answer in turns, each in its own process, so that a slow moment of the machine,
which may be shorter than a round, affects both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from specmesh.bench.engine.figures import Turn
from specmesh.bench.engine.plan import EnginePlan

Program = Callable[[EnginePlan, int], Iterator[Turn]]
"""A program that answers all prompts with that many concurrent streams, one turn per ``next``."""

_begun: list[Iterator[Turn]] = []  # in the program's process


def side_by_side(
    plan: EnginePlan, num_streams: int, programs: Sequence[tuple[ProcessPoolExecutor, Program]]
) -> Iterator[list[Turn]]:
    """Yield a turn of each program until all answers are made."""
    for process, program in programs:
        process.submit(_begin, program, plan, num_streams).result()
    for _ in plan.turns(num_streams):
        yield [process.submit(_turn).result() for process, _ in programs]
    for process, _ in programs:
        process.submit(_end).result()


def _begin(program: Program, plan: EnginePlan, num_streams: int) -> None:
    _begun.append(program(plan, num_streams))


def _turn() -> Turn:
    return next(_begun[-1])


def _end() -> None:
    """Run the program to its end, which frees its memory."""
    for _ in _begun.pop():
        raise AssertionError("more turns than the plan's")
