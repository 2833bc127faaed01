"""The requests of the streams and the behaviour of their readers, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from specmesh.client import AcceptanceMode, Filter
from specmesh.tools.kit.draw import draw_strategy
from specmesh.tools.kit.experiment import FILTER

_SHORTEST = 16
_THRESHOLDS = (-0.5, 0.5)
"""Thresholds of the filter. No log-probability is above the second, so it keeps nothing."""


@dataclass(frozen=True, slots=True)
class ChaosRequest:
    """One request and its reader, who cancels after ``cancel_after`` tokens, or stops reading for
    ``stall_s`` seconds after ``stall_after``."""

    prompt: str | tuple[int, ...]
    strategy: str
    temperature: float
    mode: AcceptanceMode
    seed: int
    max_tokens: int
    lookahead: int | None = None
    threshold: float | None = None
    stop_token_ids: tuple[int, ...] = ()
    cancel_after: int | None = None
    stall_after: int | None = None
    stall_s: float = 0.0

    @property
    def mode_name(self) -> str:
        """Return ``greedy``, ``coupled`` or ``rejection``."""
        return "greedy" if self.temperature == 0 else self.mode.value

    @property
    def options(self) -> dict[str, Any]:
        """Return the request as arguments of ``AsyncClient.generate``."""
        filtered = self.strategy == FILTER
        return {
            "strategy": self.strategy,
            "temperature": self.temperature,
            "acceptance_mode": self.mode,
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            "lookahead": self.lookahead,
            "stop_token_ids": self.stop_token_ids,
            "ignore_end_of_text": True,
            "filter": Filter(threshold=self.threshold) if filtered else None,
        }


def draw(
    rng: random.Random,
    *,
    prompt: str | tuple[int, ...],
    temperature: float,
    seed: int,
    longest: int,
    with_heads: bool,
    stop_token_ids: tuple[int, ...] = (),
) -> ChaosRequest:
    """Draw a request with any mode and any strategy, for at most ``longest`` tokens.

    Strategies that need heads are drawn only ``with_heads``. Of eight readers, six read to the end,
    one cancels and one stalls.
    """
    request = ChaosRequest(
        prompt=prompt,
        strategy=draw_strategy(rng, with_heads=with_heads),
        temperature=temperature,
        mode=rng.choice(list(AcceptanceMode)),
        seed=seed,
        max_tokens=magnitude(rng, min(_SHORTEST, longest), longest),
        lookahead=rng.choice((None, None, 1, 4, 8)),
        threshold=rng.choice((None, *_THRESHOLDS)),
        stop_token_ids=stop_token_ids,
    )
    somewhere = rng.randrange(request.max_tokens)
    match rng.randrange(8):
        case 0:
            return replace(request, cancel_after=somewhere)
        case 1:
            return replace(request, stall_after=somewhere, stall_s=rng.uniform(0.5, 5.0))
    return request


def magnitude(rng: random.Random, least: int, most: int) -> int:
    """Draw a number in [least, most]; every order of magnitude is equally likely."""
    factor: float = (most / least) ** rng.random()
    return round(least * factor)
