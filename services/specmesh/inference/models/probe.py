"""Checks that a model gives the same logits with our attention, layers and norms as with its own.

A model may give its attention arguments that ours ignores (a cap on scores, sinks), mask by a rule
of its own, not pass our arguments on to its attention, mix tokens that are adjacent in a batch, or
choose the position encoding of all by the farthest position among them: then it must not be served.
The check compares logits, not names, in a forward pass like those to be served: a tree beside
another session. There is time for a few tokens only. What a model does far into a context is
checked at one position, the end of the context, where the other session is put.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch

from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.batch import Batch, pack
from specmesh.inference.engine.paged_sequence import PagedSequence
from specmesh.inference.model import Cancellation, Logits, ModelNotLoadable

PROBE_BLOCKS = 3
"""Two for a prefix and its tree, one for the other session."""
_PREFIX_TOKENS = 8
_COMMON_TOKENS = 16
_TEXT_TOKENS = 24
_NEIGHBOUR_TOKENS = 8
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.1}
"""Bounds the difference of all logits, as a share of their norm. Rounding alone was seen to cause
2e-6 in float32 and 0.01 in bfloat16; 0.07 where it routed tokens to other experts."""
_MAX_SPREADS = 4
"""How many times more a neighbour far into its context may change logits than other tokens in a
near one do. The latter is 0 unless tokens are routed to experts, since the forward passes have one
shape. RoPE factors like those of Phi-3.5 change 0.07 of the norm of the shipped target's logits."""


class _Served(Protocol):
    def open(
        self, prefix: Sequence[int], cancellation: Cancellation, room: int = ...
    ) -> PagedSequence: ...

    def compute(self, batch: Batch) -> Logits: ...


@torch.inference_mode()
def plain_logits(name: str, model: Any) -> Logits:
    """The logits of transformers' unchanged ``model`` for two short texts: ``[2, tokens, vocab]``.

    Raises ``ModelNotLoadable`` if it cannot compute them.
    """
    tokens = torch.tensor(texts(model.config), device=model.device)
    try:
        logits: Logits = model(input_ids=tokens, use_cache=False).logits.float().cpu().numpy()
    except Exception as error:
        raise ModelNotLoadable(f"{name!r} fails to compute: {error}") from error
    return logits


def check_same(name: str, model: Any, served: _Served, plain: Logits) -> None:
    """Raise ``ModelNotLoadable`` unless ``served`` gives ``plain``, the logits of the unchanged
    ``model``, wherever the other sessions of a forward pass are in their contexts.

    Ranks that hold parts of one model check it at the same time.
    """
    who = f"{name!r}: {type(model).__name__}"
    one, other = plain
    expected = np.concatenate([one[_PREFIX_TOKENS - 1 :], other[_COMMON_TOKENS:]])
    known = np.isfinite(expected)  # float16 overflows easily
    try:
        rows, others, far = (each[known] for each in _logits_beside(model.config, served))
    except Exception as error:
        raise ModelNotLoadable(
            f"{who} does not work with an attention that is not its own: {error!r}"
        ) from error
    differ = difference(rows, expected[known])
    if not differ <= TOLERANCE[model.dtype]:
        raise ModelNotLoadable(
            f"{who} says something else with an attention that is not its own "
            f"(logits differ by {differ:.2%})"
        )
    spread, moved = difference(others, rows), difference(far, rows)
    if not moved <= _MAX_SPREADS * spread + torch.finfo(model.dtype).eps:
        raise ModelNotLoadable(
            f"{who} says something else to one session when another is at the end of its context "
            f"(rope type: {_rope_types(model.config)}; logits differ by {moved:.2%}), "
            "so answers would depend on who else is served"
        )


def _logits_beside(config: Any, served: _Served) -> list[Logits]:
    """The logits of one session in three batches: beside another session, beside one with other
    tokens, and beside the first at the context's end, where it attends to nothing before that."""
    prefix, tree = _session(config)
    session = served.open(prefix, Cancellation(), len(tree)).plan(tree, len(prefix))
    tokens = [_tokens(config, first, _NEIGHBOUR_TOKENS) for first in (100, 200)]
    near = served.open(tokens[0], Cancellation(), 0).plan(EMPTY, len(tokens[0]))
    end = range(config.max_position_embeddings)[-len(tokens[0]) :]
    neighbours = [near, replace(near, token_ids=tokens[1]), replace(near, positions=end)]
    # The session's tokens come second, where their index in the row is not their position.
    return [served.compute(pack([each, session], ()))[len(each.rows) :] for each in neighbours]


def _session(config: Any) -> tuple[list[int], TokenTree]:
    """The texts' common first tokens as a prefix, and the rest of both as a tree."""
    one, other = texts(config)
    chain = TokenTree.chain(one[_PREFIX_TOKENS:])
    branch = other[_COMMON_TOKENS:]
    following = range(len(chain) + 1, len(chain) + len(branch))
    parents = [_COMMON_TOKENS - _PREFIX_TOKENS, *following] if branch else []
    return one[:_PREFIX_TOKENS], chain.extend(branch, parents)


def texts(config: Any) -> tuple[list[int], list[int]]:
    """Two texts of equal length with a common beginning."""
    one = _tokens(config, 1, _TEXT_TOKENS)
    other = _tokens(config, 2, _TEXT_TOKENS)
    return one, one[:_COMMON_TOKENS] + other[_COMMON_TOKENS:]


def _tokens(config: Any, first: int, count: int) -> list[int]:
    count = min(count, config.max_position_embeddings)
    return [token % config.vocab_size for token in range(first, first + count)]


def difference(logits: Logits, expected: Logits) -> float:
    """The norm of the difference, as a share of that of all ``expected`` logits: one token routed
    to other experts is no failure."""
    size = max(np.linalg.norm(expected), np.finfo(np.float32).tiny)
    return float(np.linalg.norm(logits - expected) / size)


def _rope_types(config: Any) -> str:
    """The RoPE types that the configuration names, for all layers or by kind of layer."""
    parameters = getattr(config, "rope_parameters", None) or {}
    of_layers = [parameters, *(each for each in parameters.values() if isinstance(each, dict))]
    return ", ".join(each["rope_type"] for each in of_layers if "rope_type" in each) or "none"
