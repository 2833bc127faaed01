"""The requests of every kind, each a function of its number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from specmesh.client import AcceptanceMode, Filter
from specmesh.tools.kit.draw import draw_strategy

MAX_TOKENS = 12
MAX_PROMPT_CHARACTERS = 800
ABANDONED_SHARE = 0.1
_FILTERS = (Filter(threshold=-0.2), Filter(threshold=-2.0), Filter(escalation_rate=0.5))


@dataclass(frozen=True, slots=True)
class TrafficRequest:
    """One request and when its reader abandons it."""

    prompt: str
    options: Mapping[str, Any]
    """Keyword arguments of ``AsyncClient.generate``."""
    abandon_after: int | None
    """Number of the chunk, from 0, at which its reader cancels; None if it reads all."""


def request(number: int, texts: Sequence[str]) -> TrafficRequest:
    """Return the request ``number``; its prompt is a piece of one of ``texts``.

    No two prompts are equal, so that caches fill and must evict.
    """
    random = Random(number)  # noqa: S311 - nothing secret
    text = random.choice(texts)
    length = min(len(text), round(MAX_PROMPT_CHARACTERS ** random.random()))
    first = random.randrange(len(text) - length + 1)
    strategy = draw_strategy(random)
    return TrafficRequest(
        prompt=f"{number} {text[first : first + length]}",
        options={
            "strategy": strategy,
            "max_tokens": random.randint(1, MAX_TOKENS),
            "ignore_end_of_text": True,
            "seed": number,
            **random.choice(_SAMPLINGS),
            **({"filter": random.choice(_FILTERS)} if strategy == "filter" else {}),
        },
        abandon_after=random.randrange(4) if random.random() < ABANDONED_SHARE else None,
    )


_SAMPLINGS: Sequence[Mapping[str, Any]] = (
    {"temperature": 0.0},
    {"temperature": 0.8},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9},
    {"temperature": 0.8, "acceptance_mode": AcceptanceMode.REJECTION},
)
