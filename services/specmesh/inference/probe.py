"""Whether a model says with our attention, layers and norms what it says with its own.

A model may tell its attention more than we heed (a cap on scores, sinks), mask by a rule of its
own, or not hand on what we tell it: then it must not be served.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from specmesh.decoding.tree import TokenTree
from specmesh.inference.model import Ask, Cancellation, LanguageModel, Logits, ModelNotLoadable

PROBE_BLOCKS = 2
_NUM_TOKENS = 24
_NUM_PREFIX_TOKENS = 8
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.1}
"""Of the largest logit. Rounding alone was seen to do 4e-5 in float32, 0.04 in float16."""


@torch.inference_mode()
def plain_logits(name: str, model: Any) -> Logits:
    """What transformers' ``model`` says to a few tokens: ``[tokens, vocab]``.

    Raises ``ModelNotLoadable`` if it cannot answer.
    """
    tokens = torch.tensor([_tokens(model.config)], device=model.device)
    try:
        logits: Logits = model(input_ids=tokens, use_cache=False).logits[0].float().cpu().numpy()
    except Exception as error:
        raise ModelNotLoadable(f"{name!r} fails to compute: {error}") from error
    return logits


def check_same(name: str, model: Any, served: LanguageModel, plain: Logits) -> None:
    """Raises ``ModelNotLoadable`` unless ``served`` agrees with what ``model`` said by itself."""
    kind = type(model).__name__
    tokens = _tokens(model.config)
    prefix, tree = tokens[:_NUM_PREFIX_TOKENS], TokenTree.chain(tokens[_NUM_PREFIX_TOKENS:])
    try:
        scorer = served.open(prefix, Cancellation(), len(tree))
        (rows,) = served.forward([Ask(scorer, tree)])
    except Exception as error:
        raise ModelNotLoadable(
            f"{name!r}: {kind} does not work with an attention that is not its own: {error!r}"
        ) from error
    expected = plain[len(prefix) - 1 :]
    known = np.isfinite(expected)  # float16 overflows easily
    assert rows is not None
    differ = np.abs(rows - expected)[known].max(initial=0)
    largest = np.abs(expected)[known].max(initial=0)
    if not differ <= _TOLERANCE[model.dtype] * largest:
        raise ModelNotLoadable(
            f"{name!r}: {kind} says something else with an attention that is not its own "
            f"(logits of up to {largest:.3g} differ by {differ:.3g})"
        )


def _tokens(config: Any) -> list[int]:
    count = min(_NUM_TOKENS, config.max_position_embeddings)
    return [token % config.vocab_size for token in range(1, count + 1)]
