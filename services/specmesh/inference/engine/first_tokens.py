"""The first tokens of the requests that shared a forward pass, found together."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property

from specmesh.decoding.logits_row import SMALL
from specmesh.decoding.winners import OwnTokens, find_together
from specmesh.inference.model import ForwardRequest, Logits

_AT_ONCE = 8
"""The number of rows whose arrays stay in a processor's cache."""
_SMALL_AT_ONCE = 16
"""The same for rows of up to ``SMALL`` tokens."""
_LEAST_ROWS, _LEAST_TOKENS = 8, 2048
"""Fewer rows of up to ``SMALL`` tokens, or shorter ones, are searched faster one by one."""
_MOST_HELPERS = 3
"""More threads would wait for each other, since each short call needs the interpreter."""

_ALONE = 64
"""The number of forward passes after which cores that were busy may be idle again."""

Asked = list[tuple[OwnTokens, Logits]]


class FirstTokens:
    """Finds first tokens on the calling thread and on idle cores.

    The caller never waits for the others: what they have not begun it does, and what they have
    begun but not finished once it is done it does as well. Their cores are busy then, so that it
    goes on alone for a while.
    """

    def __init__(self) -> None:
        self._helping: list[Future[None]] = []
        self._num_alone = 0
        """The number of forward passes for which it asks nobody to help."""

    def find(self, requests: Sequence[ForwardRequest], results: Sequence[Logits | None]) -> None:
        """Find the first of their ``own`` tokens for those ``requests`` that want some, in coupled
        mode, and whose rows of logits are in ``results``. A token may be left for its request to
        find: that of a single request, and those of a small vocabulary."""
        asked: Asked = []
        further: list[tuple[OwnTokens, int, OwnTokens]] = []
        for request, rows in zip(requests, results, strict=True):
            own = request.own
            if own is None or own.greedy or rows is None or not len(rows):
                continue
            node = len(request.tree) + 1 - len(rows)
            if node in own.found:
                continue
            if node:  # those before it were scored earlier
                below = own.below(node, request.tree.depth(node))
                further.append((own, node, below))
                own = below
            asked.append((own, rows[0]))
        if _pays(asked):
            self._find_all(asked)
            for own, node, below in further:
                if below.found:
                    own.found[node] = below.found[0]

    def _find_all(self, asked: Asked) -> None:
        at_once = _AT_ONCE if asked[0][1].size > SMALL else _SMALL_AT_ONCE
        num_parts = -(-len(asked) // at_once)
        parts = [asked[number::num_parts] for number in range(num_parts)]
        left = deque(parts)
        self._ask_for_help(left)
        _work_off(left)
        for part in parts:
            if any(not own.found for own, _ in part):
                _find(part)
                self._num_alone = _ALONE

    def _ask_for_help(self, parts: deque[Asked]) -> None:
        if self._num_alone:
            self._num_alone -= 1
            return
        self._helping = [each for each in self._helping if not each.done()]
        for _ in range(min(len(parts) - 1, self._num_helpers - len(self._helping))):
            self._helping.append(self._helpers.submit(_work_off, parts))

    @cached_property
    def _num_helpers(self) -> int:
        return min(_MOST_HELPERS, _num_cores() - 1)

    @cached_property
    def _helpers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._num_helpers, "first-tokens")


def _pays(asked: Asked) -> bool:
    """Return whether to search these rows together takes less than to search each alone."""
    num_rows = len(asked)
    size = asked[0][1].size if asked else 0
    return num_rows > 1 and (size > SMALL or (num_rows >= _LEAST_ROWS and size >= _LEAST_TOKENS))


def _work_off(parts: deque[Asked]) -> None:
    while True:
        try:
            part = parts.popleft()
        except IndexError:
            return
        _find(part)


def _find(part: Asked) -> None:
    find_together(*zip(*part, strict=True))


def _num_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
