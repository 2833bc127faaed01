"""The settings to measure: width, number of concurrent calls, and length of context."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

NODES = (0, 1, 2, 3, 5, 8, 16, 32)
"""Numbers of nodes of a verified tree."""
STREAMS = (1, 2, 4, 8)
"""Numbers of concurrent calls."""
CONTEXTS = (72, 392)
"""Tokens before the tree. They are not whole blocks, because a call always sends its last token."""
DRAFT_WIDTHS = (1, 2, 4, 8, 16)
"""Numbers of tokens of each level of a draft."""
DRAFT_DEPTH = 4
HEADS_WIDTHS = (1, 4, 8, 16)
HEADS_CONTEXTS = 3
"""Number of contexts for heads. Heads ignore the context, but the shape of their tree depends on
it."""
_MOST_TOKENS = 200
"""Maximum total of tokens of the calls of a setting: more would take most of the time for little
use."""
_ROOM = 64
"""Tokens of the model's context that are reserved for trees."""


@dataclass(frozen=True, slots=True, order=True)
class CallSetting:
    """Concurrent calls that are made repeatedly."""

    streams: int
    context: int
    width: int
    """Nodes of a verified tree, or tokens of each level of a draft."""
    depth: int = 0
    """Number of drafted levels; 0 for a verification without a draft."""


def contexts(limit: int) -> Sequence[int]:
    """Return those of ``CONTEXTS`` that fit a model's context of ``limit`` tokens (0 means no
    limit)."""
    fitting = [each for each in CONTEXTS if not limit or each + _ROOM <= limit]
    return fitting or [min(CONTEXTS[0], max(1, limit // 2))]


def verifications(limit: int) -> list[CallSetting]:
    """Return the settings for a target whose context has ``limit`` tokens."""
    return [
        CallSetting(streams, context, nodes)
        for streams, context, nodes in product(STREAMS, contexts(limit), NODES)
        if streams * (nodes + 1) <= _MOST_TOKENS
    ]


def drafts(limit: int, widths: Sequence[int]) -> list[CallSetting]:
    """Return the settings for a drafter of ``widths`` whose context has ``limit`` tokens. The first
    level is a forward of one token for any width."""
    shapes = [(1, 1), *((width, DRAFT_DEPTH) for width in widths)]
    return [
        CallSetting(streams, context, *shape)
        for streams, context, shape in product(STREAMS, contexts(limit), shapes)
        if streams * shape[0] <= _MOST_TOKENS // 2
    ]


def heads_drafts(limit: int, heads_depth: int) -> list[CallSetting]:
    """Return the settings for a target's heads, which draft ``heads_depth`` levels. Several
    concurrent calls draft one level only: below it, each would read as many tokens as its own tree
    has."""
    context = contexts(limit)[0]
    depths = sorted({(heads_depth + 1) // 2, heads_depth} - {1})
    trees = product(range(HEADS_CONTEXTS), HEADS_WIDTHS, depths)
    return [
        *(CallSetting(streams, context, 1, 1) for streams in range(1, max(STREAMS) + 1)),
        *(CallSetting(1, max(1, context - less), *shape) for less, *shape in trees),
    ]


def shuffled(settings: Sequence[CallSetting], seed: int) -> list[CallSetting]:
    """Return the settings in an order in which any beginning is spread over all of them."""
    rng = random.Random(seed)  # noqa: S311 - a profile must repeat
    return rng.sample(settings, len(settings))
