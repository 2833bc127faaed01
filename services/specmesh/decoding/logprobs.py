"""Log-probabilities of an answer's tokens, by the target's own distribution.

They come from the softmax of the unmodified logits: temperature, top-k and top-p change which
tokens are drawn, not how likely the target finds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmesh.decoding.logits_row import LogitsRow
from specmesh.decoding.trees.tree import TokenTree

MAX_TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural logarithms of probabilities at one position, rounded to float32.

    ``logprob`` is that of the token there. ``top_token_ids`` are the likeliest tokens, best first,
    the lower id first on ties, and ``top_logprobs`` are theirs.
    """

    logprob: float
    top_token_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()


def logprobs_at(logits: NDArray[np.floating[Any]], token: int, num_top: int) -> Logprobs:
    """Return the log-probabilities of ``token`` and of the ``num_top`` likeliest tokens, from
    ``logits`` ``[vocab]``; fewer if the others are impossible (a logit of -inf).

    Raises ``FloatingPointError`` if the logits hold NaN or no finite maximum.
    """
    row = LogitsRow(logits, temperature=1.0)
    top = row.likeliest(num_top) if num_top else np.empty(0, np.int64)
    log_weights = row.log_weights(np.append(top, token))
    *top_logprobs, logprob = (log_weights - math.log(row.total)).astype(np.float32).tolist()
    return Logprobs(logprob, tuple(top.tolist()), tuple(top_logprobs))


def logprobs_of_nodes(
    tree: TokenTree, logits: NDArray[np.floating[Any]], num_top: int
) -> tuple[Logprobs, ...]:
    """Return the log-probabilities of the token of each node, given the tokens before it.

    Row k of ``logits`` ``[len(tree) + 1, vocab]`` holds the target's logits after node k.
    """
    return tuple(
        logprobs_at(logits[parent], token, num_top)
        for parent, token in zip(tree.parents, tree.token_ids, strict=True)
    )


def logprobs_along(
    tree: TokenTree,
    logits: NDArray[np.floating[Any]],
    accepted_nodes: Sequence[int],
    next_token: int,
    num_top: int,
) -> tuple[Logprobs, ...]:
    """Return the log-probabilities of a verdict's tokens: those of the accepted nodes and the next
    one.

    Row k of ``logits`` ``[len(tree) + 1, vocab]`` holds the target's logits after node k.
    """
    nodes = (0, *accepted_nodes)
    tokens = (*tree.tokens_on(accepted_nodes), next_token)
    return tuple(
        logprobs_at(logits[node], token, num_top) for node, token in zip(nodes, tokens, strict=True)
    )
