"""A check that a model gives the same logits with our attention, layers and norms as with its own.

A model may give its attention arguments that ours ignores (a cap on scores, sinks), mask by its own
rule, not pass our arguments on to its attention, mix adjacent tokens of a batch, or choose the
position encoding of all tokens by the farthest position. Such a model must not be served. The check
compares logits, not names, in forward passes like those in service: a token alone, and beside
another session a prefix, then a tree that reads the prefix's KV. There is only time for a few
tokens. Far into a context, the check covers one position: the end of the context, where it puts the
other session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch

from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.batch import BatchPart, Copy
from specmesh.inference.engine.paged_sequence import PagedSequence
from specmesh.inference.model import Cancellation, Logits, ModelNotLoadable

PROBE_BLOCKS = 3
"""Two blocks for a prefix and its tree, and one for the other session. The widest forward of
``service/warm_up.py`` takes as many, so that no replica can start with fewer."""
_PREFIX_TOKENS = 8
_COMMON_TOKENS = 16
_TEXT_TOKENS = 24
_NEIGHBOUR_TOKENS = 8
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.1}
"""Bounds on the difference of all logits, as a share of their norm. Rounding alone caused 2e-6 in
float32 and 0.01 in bfloat16; 0.07 where it routed tokens to other experts."""
_MAX_SPREADS = 4
"""The factor by which a neighbour at the end of its context may change logits more than other
tokens of a nearby neighbour do. The latter change is 0 unless tokens are routed to experts, since
all these forward passes have the same shape. RoPE factors like those of Phi-3.5 change 0.07 of the
norm of the shipped target's logits."""


class _Served(Protocol):
    def open(
        self, prefix: Sequence[int], cancellation: Cancellation, room: int = ...
    ) -> PagedSequence: ...

    def pack(self, parts: Sequence[BatchPart], copies: Sequence[Copy]) -> Any: ...

    def compute(self, batch: Any) -> Logits: ...


@torch.inference_mode()
def plain_logits(name: str, model: Any) -> Logits:
    """Return the logits of transformers' unchanged ``model`` for two short texts: ``[2, tokens,
    vocab]``.

    Raises ``ModelNotLoadable`` if it cannot compute them, or no token of a text would be the
    likeliest. Logits of −inf are left alone: a model may rule tokens out.
    """
    tokens = torch.tensor(texts(model.config), device=model.device)
    try:
        logits: Logits = model(input_ids=tokens, use_cache=False).logits.float().cpu().numpy()
    except Exception as error:
        raise ModelNotLoadable(f"{name!r} fails to compute: {error}") from error
    if not np.isfinite(logits.max(axis=-1)).all():  # the maximum of a row with NaN is NaN
        dtype = str(model.dtype).removeprefix("torch.")
        advice = "; try --dtype bfloat16, which has a wider range" * (dtype == "float16")
        raise ModelNotLoadable(
            f"{name!r} computes logits in {dtype} that are NaN or infinite{advice}"
        )
    return logits


def check_same(name: str, model: Any, served: _Served, plain: Logits) -> None:
    """Raise ``ModelNotLoadable`` unless ``served`` computes ``plain``, the logits of the unchanged
    ``model``, for any positions of the other sessions in the forward pass.

    Ranks that hold parts of one model check it at the same time.
    """
    who = f"{name!r}: {type(model).__name__}"
    one, other = plain
    expected = np.concatenate([one[:1], one[_PREFIX_TOKENS - 1 :], other[_COMMON_TOKENS:]])
    known = np.isfinite(expected)  # −inf less −inf is no number
    try:
        rows, others, far = (each[known] for each in _logits_beside(model.config, served))
    except Exception as error:
        raise ModelNotLoadable(
            f"{who} does not work with specmesh's attention: {error!r}"
        ) from error
    differ = difference(rows, expected[known])
    if not differ <= TOLERANCE[model.dtype]:
        raise ModelNotLoadable(
            f"{who} computes different logits with specmesh's attention "
            f"(they differ by {differ:.2%})"
        )
    spread, moved = difference(others, rows), difference(far, rows)
    if not moved <= _MAX_SPREADS * spread + torch.finfo(model.dtype).eps:
        raise ModelNotLoadable(
            f"{who} computes different logits when another session is at the end of its context "
            f"(rope type: {_rope_types(model.config)}; they differ by {moved:.2%}), "
            "so answers would depend on other sessions"
        )


def _logits_beside(config: Any, served: _Served) -> list[Logits]:
    """Return the logits of one session beside three neighbours: another session, one with other
    tokens, and the first at the end of the context, attending to nothing before it. Before them
    come those of its first token alone, for which there may be other kernels."""
    prefix, tree = _session(config)
    start = served.open(prefix[:1], Cancellation(), 0)
    # A copy, since the next forward pass may write into its place.
    alone = np.array(served.compute(served.pack([start.plan(EMPTY, 1)], ())))
    start.release()
    session = served.open(prefix, Cancellation(), len(tree))
    parts = [session.plan(EMPTY, len(prefix))]
    if len(tree):  # there is none if the context is that short
        session.advance(parts[0], EMPTY)
        # A forward of its own: only what reads the KV tells whether it was stored right.
        parts.append(session.plan(tree, 0))
    tokens = [_tokens(config, first, _NEIGHBOUR_TOKENS) for first in (100, 200)]
    beside = served.open(tokens[0], Cancellation(), 0)
    near = beside.plan(EMPTY, len(tokens[0]))
    end = range(config.max_position_embeddings)[-len(tokens[0]) :]
    neighbours = [near, replace(near, token_ids=tokens[1]), replace(near, positions=end)]
    logits = [
        np.concatenate([alone, *(_rows_beside(each, part, served) for part in parts)])
        for each in neighbours
    ]
    for sequence in (session, beside):
        sequence.release()
    return logits


def _rows_beside(neighbour: BatchPart, part: BatchPart, served: _Served) -> Logits:
    """Return the logits of ``part``, which comes second, so that the index of its tokens in the row
    differs from their position."""
    logits = served.compute(served.pack([neighbour, part], ()))
    return np.array(logits)[len(neighbour.rows) :]


def _session(config: Any) -> tuple[list[int], TokenTree]:
    """Return the texts' common first tokens as a prefix, and the rest of both as a tree."""
    one, other = texts(config)
    chain = TokenTree.chain(one[_PREFIX_TOKENS:])
    branch = other[_COMMON_TOKENS:]
    following = range(len(chain) + 1, len(chain) + len(branch))
    parents = [_COMMON_TOKENS - _PREFIX_TOKENS, *following] if branch else []
    return one[:_PREFIX_TOKENS], chain.extend(branch, parents)


def texts(config: Any) -> tuple[list[int], list[int]]:
    """Return two texts of equal length with a common prefix."""
    one = _tokens(config, 1, _TEXT_TOKENS)
    other = _tokens(config, 2, _TEXT_TOKENS)
    return one, one[:_COMMON_TOKENS] + other[_COMMON_TOKENS:]


def _tokens(config: Any, first: int, count: int) -> list[int]:
    count = min(count, config.max_position_embeddings)
    return [token % config.vocab_size for token in range(first, first + count)]


def difference(logits: Logits, expected: Logits) -> float:
    """Return the norm of the difference, relative to the norm of all ``expected`` logits, so that
    one token routed to other experts is no failure."""
    size = max(np.linalg.norm(expected), np.finfo(np.float32).tiny)
    return float(np.linalg.norm(logits - expected) / size)


def _rope_types(config: Any) -> str:
    """Return the RoPE types that the configuration names, for all layers or by kind of layer."""
    parameters = getattr(config, "rope_parameters", None) or {}
    of_layers = [parameters, *(each for each in parameters.values() if isinstance(each, dict))]
    return ", ".join(each["rope_type"] for each in of_layers if "rope_type" in each) or "none"
