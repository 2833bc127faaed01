"""Tokens chosen by compiled code, which not every process needs."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.compiled.table import NUM_HEAD_FIELDS, NUM_ROW_FIELDS

if TYPE_CHECKING:
    from specmesh.decoding.compiled.functions import Functions

_functions: Functions | None = None
_TableOfOne = ctypes.c_int64 * (NUM_HEAD_FIELDS + NUM_ROW_FIELDS)


Find = Callable[[Any], None]
"""Finds the tokens of the rows in a table, which is an array of ctypes."""


class Team(NamedTuple):
    """Threads that ``find`` tokens at once, and what tells their number."""

    find: Find
    num_threads: Callable[[], int]


def prepare(team_for: Callable[[int], Team], tell: Callable[[], None] = lambda: None) -> None:
    """Have tokens chosen by compiled code from now on, for processes that choose from the logits of
    a model, once the library that computes them is loaded. ``team_for`` returns the threads that
    run the function at an address.

    Takes 0.5 s, and five more where no earlier process has left the code on the disk; ``tell`` is
    called before these.
    """
    global _functions  # noqa: PLW0603 - code is compiled once for a process
    if _functions is None:
        from specmesh.decoding.compiled.functions import compile_functions

        _functions = compile_functions(team_for, tell)


def num_threads() -> int:
    """Return how many threads ``find_tokens`` has in the calling thread."""
    return 1 if _functions is None else _functions.team.num_threads()


def suits(logits: NDArray[Any]) -> bool:
    """Return whether compiled code can choose from ``logits``."""
    return _functions is not None and logits.dtype == np.float32 and logits.flags.carray


class RowAt(NamedTuple):
    """A row of logits that suit compiled code, at this address. Its token is that with the highest
    logit / ``temperature`` + Gumbel noise of the stream with this ``key``; at temperature 0 the
    likeliest, the lowest id on ties."""

    address: int
    temperature: float
    key: int


def find_token(logits: NDArray[np.float32], temperature: float, key: int) -> int | None:
    """Return the token of a row of ``logits`` ``[vocab]`` that suit compiled code. None if it is
    for numpy to say: which token it is, if any, is a matter of rounding."""
    assert _functions is not None
    address = logits.__array_interface__["data"][0]
    table = _TableOfOne(*_head(1, logits.size), address, key, _scale(temperature))
    _functions.alone(table)
    return _token(table[NUM_HEAD_FIELDS], logits.size)


def find_tokens(rows: Sequence[RowAt], vocab_size: int) -> list[int | None]:
    """Return the same for ``rows``, found at once by all threads with which the calling thread
    computes forward passes."""
    assert _functions is not None
    fields = [*_head(len(rows), vocab_size)]
    for address, temperature, key in rows:
        fields += address, key, _scale(temperature)
    table = (ctypes.c_int64 * len(fields))(*fields)
    _functions.team.find(table)
    return [_token(each, vocab_size) for each in table[NUM_HEAD_FIELDS::NUM_ROW_FIELDS]]


def _token(written: int, vocab_size: int) -> int | None:
    """Return what was written in place of a row's address as a token. None if it is none, or is the
    address still."""
    return written if 0 <= written < vocab_size else None


def _head(num_rows: int, vocab_size: int) -> tuple[int, ...]:
    return 0, num_rows, vocab_size


def _scale(temperature: float) -> int:
    """Return the bits of 1 / ``temperature``; 0 for 0."""
    return int.from_bytes(struct.pack("<d", 1 / temperature), "little") if temperature else 0
