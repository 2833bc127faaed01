"""The choice of tokens from all logits of a forward pass at once, before its jobs go on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specmesh.decoding.compiled import choice as compiled
from specmesh.decoding.own_tokens import OwnTokens
from specmesh.inference.model import ForwardRequest, Logits

_LARGE = 16_384
"""The size of the vocabulary from which on finding the likeliest token takes longer than handing
the row over."""


def find_own(requests: Sequence[ForwardRequest], results: Sequence[Logits | None]) -> None:
    """Find the ``own`` tokens of ``requests`` in the logits of their forward pass, ``results``, by
    all threads that computed it.

    Left to the verifications are all rows where there is one thread, one row alone, those of a tree
    below its root, most of which they will not need, and small rows in greedy decoding. Of a chain
    all rows are searched, though those after a rejected token will not be needed either.
    """
    if compiled.num_threads() < 2:  # noqa: PLR2004 - two are at once
        return
    rows: list[compiled.RowAt] = []
    takers: list[tuple[OwnTokens, int]] = []
    vocab_size = 0
    for request, logits in zip(requests, results, strict=True):
        own, depths = request.own, request.tree.depths
        if own is None or not isinstance(logits, np.ndarray) or not compiled.suits(logits):
            continue
        address, row_bytes, vocab_size = logits.ctypes.data, logits.strides[0], logits.shape[1]
        if own.greedy and vocab_size < _LARGE:
            continue
        first = len(depths) - len(logits)
        for node in range(first, len(depths) if request.tree.is_chain else 1):
            key = 0 if own.greedy else own.key_at(depths[node])
            rows.append(compiled.RowAt(address, own.temperature, key))
            takers.append((own, node))
            address += row_bytes
    if len(rows) > 1:
        for (own, node), token in zip(takers, compiled.find_tokens(rows, vocab_size), strict=True):
            if token is not None:
                own.found[node] = token
