"""Drafts from every position of a text: what heads would guess, had they begun there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from specmesh.inference.models.heads.draft_heads import DraftHeads
from specmesh.inference.models.heads.eagle3.draft_attention import DraftAttention
from specmesh.inference.models.heads.eagle3.layer_tap import look_inside
from specmesh.inference.models.heads.eagle3.served import Eagle3Heads
from specmesh.inference.models.heads.registry import Heads
from specmesh.inference.models.heads.seen import look


@torch.inference_mode()
def drafts_along(heads: Heads, target: Any, text: Tensor, first: int) -> Iterator[Tensor]:
    """Yield, depth by depth, the logits ``[drafts, vocab]`` of drafts that begin with the tokens of
    ``text`` ``[tokens]`` from ``first`` on, of which each is taken for the target's own.

    Row r at depth d, from 0 on, is the guess of token ``first + r + d + 1`` after the tokens before
    it; there is none of a token beyond the text. ``target`` is a model as ``read_model`` returns
    it, and ``first`` at least 1.
    """
    if isinstance(heads, Eagle3Heads):
        return _with_attention(heads, target, text, first)
    return _without(heads, target, text, first)


def _without(heads: DraftHeads, target: Any, text: Tensor, first: int) -> Iterator[Tensor]:
    # A token was chosen from the target's hidden state at the one before.
    states = heads.begin(look(target, text[None]).hidden[0, first - 1 : -2])
    for depth in range(heads.max_depth):
        count = len(text) - 1 - first - depth
        if count <= 0:
            return
        read = text[first + depth : -1]
        logits, states = heads.step(states[:count], read, torch.full_like(read, depth))
        yield logits


def _with_attention(heads: Eagle3Heads, target: Any, text: Tensor, first: int) -> Iterator[Tensor]:
    hidden = look_inside(target, text[None], heads.layer_ids).hidden[0]
    states, attend = heads.fuse(hidden[:-2]), DraftAttention()
    for depth in range(heads.max_depth):
        positions = torch.arange(1 + depth, len(text) - 1)
        if len(positions) < first:
            return
        states = heads.read(text[positions], states[: len(positions)], positions, attend)
        yield heads.logits(states[first - 1 :])
