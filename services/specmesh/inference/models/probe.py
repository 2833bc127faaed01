"""Whether a model says with our attention, layers and norms what it says with its own.

A model may tell its attention more than we heed (a cap on scores, sinks), mask by a rule of its
own, not hand on what we tell it, mix tokens that lie side by side in a forward, or place all of
them by the farthest one: then it must not be served. What is looked at is what it says, not
what it is called, in a forward like those it is to serve: a tree beside another session. There
is time for a few tokens only. What a model does far into a context is seen at one place, the
context's end, for there the other session is put.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch

from specmesh.decoding.tree import EMPTY, TokenTree
from specmesh.inference.engine.batch import Batch, pack
from specmesh.inference.engine.paged_sequence import PagedSequence
from specmesh.inference.model import Cancellation, Logits, ModelNotLoadable

PROBE_BLOCKS = 3
"""Two for a prefix and its tree, one for the neighbour."""
_PREFIX_TOKENS = 8
_COMMON_TOKENS = 16
_TEXT_TOKENS = 24
_NEIGHBOUR_TOKENS = 8
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.1}
"""Of the logits, all together. Rounding alone was seen to do 2e-6 in float32 and 0.01 in
bfloat16; 0.07 where it made tokens choose other experts."""
_SPREADS = 4
"""How much more a far neighbour may change than another near one does. That is nothing but
where experts are chosen, for the forwards are of one shape. RoPE factors like those of Phi-3.5
change 0.07 of the shipped target's logits."""


class _Served(Protocol):
    def open(
        self, prefix: Sequence[int], cancellation: Cancellation, room: int = ...
    ) -> PagedSequence: ...

    def compute(self, batch: Batch) -> Logits: ...


@torch.inference_mode()
def plain_logits(name: str, model: Any) -> Logits:
    """What transformers' ``model`` says to two short texts: ``[2, tokens, vocab]``.

    Raises ``ModelNotLoadable`` if it cannot answer.
    """
    tokens = torch.tensor(_texts(model.config), device=model.device)
    try:
        logits: Logits = model(input_ids=tokens, use_cache=False).logits.float().cpu().numpy()
    except Exception as error:
        raise ModelNotLoadable(f"{name!r} fails to compute: {error}") from error
    return logits


def check_same(name: str, model: Any, served: _Served, plain: Logits) -> None:
    """Raises ``ModelNotLoadable`` unless ``served`` agrees with what ``model`` said by itself,
    and that wherever the other sessions of a forward are.

    Ranks that hold parts of one model check it at the same time.
    """
    who = f"{name!r}: {type(model).__name__}"
    one, other = plain
    expected = np.concatenate([one[_PREFIX_TOKENS - 1 :], other[_COMMON_TOKENS:]])
    known = np.isfinite(expected)  # float16 overflows easily
    try:
        rows, others, far = (each[known] for each in _beside_neighbours(model.config, served))
    except Exception as error:
        raise ModelNotLoadable(
            f"{who} does not work with an attention that is not its own: {error!r}"
        ) from error
    differ = _difference(rows, expected[known])
    if not differ <= _TOLERANCE[model.dtype]:
        raise ModelNotLoadable(
            f"{who} says something else with an attention that is not its own "
            f"(logits differ by {differ:.2%})"
        )
    spread, moved = _difference(others, rows), _difference(far, rows)
    if not moved <= _SPREADS * spread + torch.finfo(model.dtype).eps:
        raise ModelNotLoadable(
            f"{who} says something else to one session when another is at the end of its context "
            f"(rope type: {_rope_types(model.config)}; logits differ by {moved:.2%}), "
            "so answers would depend on who else is served"
        )


def _beside_neighbours(config: Any, served: _Served) -> list[Logits]:
    """What one session is told beside another, beside one that says something else, and beside
    the first at the context's end, which attends to nothing before that."""
    prefix, tree = _session(config)
    session = served.open(prefix, Cancellation(), len(tree)).plan(tree, len(prefix))
    tokens = [_tokens(config, first, _NEIGHBOUR_TOKENS) for first in (100, 200)]
    near = served.open(tokens[0], Cancellation(), 0).plan(EMPTY, len(tokens[0]))
    end = range(config.max_position_embeddings)[-len(tokens[0]) :]
    neighbours = [near, replace(near, token_ids=tokens[1]), replace(near, positions=end)]
    # The session's tokens come second, where their place in the row is not their position.
    return [served.compute(pack([each, session], ()))[len(each.rows) :] for each in neighbours]


def _session(config: Any) -> tuple[list[int], TokenTree]:
    """The texts' first tokens, and as a tree the rest of both."""
    one, other = _texts(config)
    chain = TokenTree.chain(one[_PREFIX_TOKENS:])
    branch = other[_COMMON_TOKENS:]
    following = range(len(chain) + 1, len(chain) + len(branch))
    parents = [_COMMON_TOKENS - _PREFIX_TOKENS, *following] if branch else []
    return one[:_PREFIX_TOKENS], chain.extend(branch, parents)


def _texts(config: Any) -> tuple[list[int], list[int]]:
    """Two texts of one length, which begin alike."""
    one = _tokens(config, 1, _TEXT_TOKENS)
    other = _tokens(config, 2, _TEXT_TOKENS)
    return one, one[:_COMMON_TOKENS] + other[_COMMON_TOKENS:]


def _tokens(config: Any, first: int, count: int) -> list[int]:
    count = min(count, config.max_position_embeddings)
    return [token % config.vocab_size for token in range(first, first + count)]


def _difference(logits: Logits, expected: Logits) -> float:
    """As a share of all that is expected: one token that chose other experts is no failure."""
    size = max(np.linalg.norm(expected), np.finfo(np.float32).tiny)
    return float(np.linalg.norm(logits - expected) / size)


def _rope_types(config: Any) -> str:
    """As the configuration says, for all layers or by kind of layer."""
    parameters = getattr(config, "rope_parameters", None) or {}
    of_layers = [parameters, *(each for each in parameters.values() if isinstance(each, dict))]
    return ", ".join(each["rope_type"] for each in of_layers if "rope_type" in each) or "none"
