"""The tokens that requests want found in their logits, for the rows of one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.own_tokens import OwnTokens
from specmesh.inference.engine.forward_plan import Planned
from specmesh.inference.model import ForwardRequest

GREEDY, COUPLED = 1, 2
"""The kinds of rows whose tokens are wanted; 0 is that of the others."""


class Wanted(NamedTuple):
    """The ``own`` tokens that a request wants, None if it wants none, and the ``nodes`` with their
    ``depths`` after which the pass computes logits for it."""

    own: OwnTokens | None
    nodes: range
    depths: Sequence[int]

    @classmethod
    def of(cls, request: ForwardRequest, planned: Planned) -> Wanted:
        """Return what ``request`` wants of the rows that are ``planned`` for it."""
        sequence = planned.sequence
        first = 0 if sequence.num_pending_tokens else sequence.num_scored_nodes + 1
        nodes = range(first, len(request.tree) + 1) if planned.part.rows else range(0)
        return cls(request.own, nodes, request.tree.depths)


class WantedRows(NamedTuple):
    """The tensors that tell the kernels of each row: ``kinds``, ``keys`` of noise and
    ``temperatures``, ``[rows]`` each."""

    kinds: NDArray[np.int32]
    keys: NDArray[np.int64]
    temperatures: NDArray[np.float64]


def rows_of(wanted: Sequence[Wanted], count: int) -> WantedRows:
    """Return the ``count`` rows of a pass, those of the requests one after the other; nothing is
    wanted of any that are left."""
    kinds, keys, temperatures = np.zeros(count, np.int32), [0] * count, np.ones(count)
    row = 0
    for own, nodes, depths in wanted:
        end = row + len(nodes)
        if own is not None:
            kinds[row:end] = GREEDY if own.greedy else COUPLED
            temperatures[row:end] = own.temperature
            if not own.greedy:
                keys[row:end] = [own.key_at(depths[node]) for node in nodes]
        row = end
    return WantedRows(kinds, np.array(keys, np.uint64).view(np.int64), temperatures)


def hand_out(tokens: Sequence[int], wanted: Sequence[Wanted]) -> None:
    """Give each request those of the ``tokens`` of all rows that were found: not negative."""
    row = 0
    for own, nodes, _ in wanted:
        if own is not None:
            found = tokens[row : row + len(nodes)]
            own.found.update(
                (node, token) for node, token in zip(nodes, found, strict=True) if token >= 0
            )
        row += len(nodes)
